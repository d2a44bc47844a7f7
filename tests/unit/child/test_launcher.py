"""The launcher: warm and cold children are alike, and whoever dies leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests_child import ZOO, Watched, is_alive, run_config, wait_until

from amp_core import fork_client
from amp_core.config import parse_recipe
from amp_core.events import Finished, Started
from amp_core.launcher import Launcher

Watch = Callable[..., Watched]


@pytest.mark.parametrize("recipe", ["32-true", "bf16-mixed", "16-mixed"])
def test_a_forked_run_equals_a_cold_one_bit_for_bit(watch: Watch, cold: Launcher, recipe: str) -> None:
    config = {"recipe": parse_recipe(recipe), "steps": 30, "num_threads": 2}
    forked = watch("tiny", **config).end()
    started = watch("tiny", cold, **config).end()
    for name in ("train/loss", "grad/norm", "eval/loss"):
        assert forked.trace(name) == started.trace(name)
        assert forked.trace(name)
    assert forked.all(Finished)[0].metrics == started.all(Finished)[0].metrics


def test_threads_are_those_asked_for_and_torch_decides_otherwise(watch: Watch) -> None:
    chosen = watch("tiny", num_threads=1).end().all(Started)[0].environment["num_threads"]
    free = watch("tiny", num_threads=None).end().all(Started)[0].environment["num_threads"]
    assert chosen == 1
    assert free == int(subprocess.check_output([sys.executable, "-c", "import torch; print(torch.get_num_threads())"]))


def test_a_warm_start_takes_well_under_a_second(watch: Watch) -> None:
    watch("tiny").end()
    times = []
    for _ in range(3):
        began = time.time()
        ended = watch("tiny", steps=1).end()
        times.append(ended.frames[0].at - began)
    assert min(times) < 1.0


PARENT = """
import sys, time
sys.path.insert(0, {folder!r})
from pathlib import Path
from tests_child import run_config
from amp_core.launcher import Launcher
launcher = Launcher(warm={warm})
child = launcher.launch(run_config({name!r}, Path({scratch!r}), steps=10**6))
print(child.pid, launcher.fork_server_pid or 0, flush=True)
while data := child.log.read1(4096):
    if {text!r} in data:
        print("running", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(name: str, text: bytes, warm: bool) -> subprocess.Popen[str]:
        folder = str(ZOO.parent)
        script = PARENT.format(folder=folder, warm=warm, name=name, scratch=str(tmp_path), text=text)
        started.append(subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("name", "text", "warm"),
    [
        ("loops-forever", b"looping", True),
        ("loops-forever", b"looping", False),
        ("holds-the-interpreter", b"holding", True),
    ],
)
def test_children_die_within_a_second_of_their_parents_kill(
    parent: Callable[..., subprocess.Popen[str]], name: str, text: bytes, warm: bool
) -> None:
    process = parent(name, text, warm)
    assert process.stdout is not None
    child, server = map(int, process.stdout.readline().split())
    assert process.stdout.readline() == "running\n"
    process.kill()
    assert wait_until(lambda: not is_alive(child), 5) < 1.0
    if server:
        wait_until(lambda: not is_alive(server), 5)


def test_a_killed_fork_server_costs_one_cold_start_and_no_run(watch: Watch) -> None:
    with Launcher(warm=True) as launcher:
        running = watch("slow", launcher, steps=150, flush_interval_s=0.05)
        wait_until(lambda: len(running.frames) > 1, 60)
        first = launcher.fork_server_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_alive(first), 5)
        fallback = watch("tiny", launcher).end()
        assert fallback.exit_code == 0
        ended = running.end()
        assert len(ended.trace()) == 150
        assert isinstance(ended.frames[-1].event, Finished)
        assert ended.exit_code == -signal.SIGKILL  # what stands for an exit code nobody could collect
        assert launcher.fork_server_pid not in (None, first)
        again = watch("tiny", launcher).end()
        assert again.exit_code == 0


def test_a_fork_server_that_hangs_is_killed(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_client, "ANSWER_TIMEOUT_S", 0.5)
    with Launcher(warm=True) as launcher:
        watch("tiny", launcher).end()
        first = launcher.fork_server_pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        assert watch("tiny", launcher).end().exit_code == 0
        assert not is_alive(first)


def test_a_child_that_dies_before_it_reads_its_configuration_is_no_error_of_the_launch(tmp_path: Path) -> None:
    with Launcher(warm=False, env={"PYTHONHOME": "/nonexistent"}) as launcher:
        params = {"text": "x" * 300_000}
        config = run_config("tiny", tmp_path)
        big = run_config("tiny", tmp_path, workload=type(config.workload)(name="tiny", path=str(ZOO), params=params))
        ended = Watched(launcher.launch(big)).end()
    assert ended.exit_code == 1
    assert ended.frames == []
    assert ended.log


def test_a_fork_server_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    with Launcher(warm=True, env={"PYTHONHOME": "/nonexistent"}) as launcher:
        for _ in range(4):
            Watched(launcher.launch(run_config("tiny", tmp_path))).end()
        assert launcher.fork_server_pid is None


def test_closing_kills_what_runs(watch: Watch) -> None:
    with Launcher(warm=True) as launcher:
        running = watch("loops-forever", launcher)
        running.wait_for_log(b"looping")
    assert running.end(5).exit_code == -signal.SIGKILL


def test_the_launcher_loads_no_torch() -> None:
    code = "import amp_core.launcher, sys; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_fork_server_has_one_thread_and_no_device(watch: Watch, warm: Launcher) -> None:
    watch("tiny").end()
    threads = list(Path(f"/proc/{warm.fork_server_pid}/task").iterdir())
    maps = Path(f"/proc/{warm.fork_server_pid}/maps").read_text()
    assert "/dev/nvidia" not in maps
    assert len(threads) == 1
