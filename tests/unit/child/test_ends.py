"""However a run ends, its record says so: events, exit code, log."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests_child import Watched, is_alive, run_config, wait_until

from amp_core.events import Evaluated, Failed, Finished, Started, read_frames
from amp_core.launcher import Launcher

Watch = Callable[..., Watched]


def test_a_finished_run_ends_with_zero_and_frames_without_gaps(watch: Watch) -> None:
    ended = watch("tiny").end()
    assert ended.exit_code == 0
    assert [frame.sequence for frame in ended.frames] == list(range(1, len(ended.frames) + 1))
    assert isinstance(ended.frames[0].event, Started)
    assert isinstance(ended.frames[-1].event, Finished)
    assert len(ended.trace()) == 12
    assert ended.all(Evaluated)[-1].final


def test_an_exception_is_told_with_its_traceback(watch: Watch) -> None:
    ended = watch("raises").end()
    assert ended.exit_code == 1
    assert ended.failed.kind == "exception"
    assert ended.failed.message == "ValueError: the fifth batch is bad"
    assert "in misbehave" in ended.failed.traceback


def test_sys_exit_is_a_failure_whatever_its_code(watch: Watch) -> None:
    ended = watch("exits").end()
    assert ended.exit_code == 1
    assert ended.failed.kind == "exit"
    assert "sys.exit(3)" in ended.failed.message


def test_os_exit_leaves_only_the_exit_code(watch: Watch) -> None:
    ended = watch("exits-at-once").end()
    assert ended.exit_code == 7
    assert not ended.all(Failed)


@pytest.mark.parametrize("kind", ["warm", "cold"])
def test_a_segfault_gives_its_signal_and_a_stack_in_the_log(
    watch: Watch, kind: str, request: pytest.FixtureRequest
) -> None:
    launcher: Launcher = request.getfixturevalue(kind)
    ended = watch("segfaults", launcher).end()
    assert ended.exit_code == -signal.SIGSEGV
    assert b"Segmentation fault" in ended.log
    assert b"misbehave" in ended.log
    assert isinstance(ended.frames[0].event, Started)


def test_memory_that_cannot_be_had_is_told_as_such(watch: Watch) -> None:
    ended = watch("out-of-memory").end()
    assert ended.exit_code == 1
    assert ended.failed.kind == "out_of_memory"


def test_an_endless_loop_can_be_killed(watch: Watch) -> None:
    running = watch("loops-forever")
    running.wait_for_log(b"looping")
    assert running.child.wait(0.05) is None
    running.child.kill()
    assert running.end(5).exit_code == -signal.SIGKILL


def test_an_unknown_workload_and_a_bad_recipe_are_told(watch: Watch) -> None:
    unknown = watch("nonsense").end()
    assert unknown.exit_code == 1
    assert unknown.failed.kind == "workload"
    assert "defines no workload 'nonsense'" in unknown.failed.message
    nowhere = watch("tiny", device="nonsense").end()
    assert nowhere.failed.kind == "recipe"
    assert "choose cpu or cuda" in nowhere.failed.message


def test_a_soft_cancel_hands_over_every_step_and_says_interrupted(watch: Watch) -> None:
    running = watch("slow", steps=100_000, flush_interval_s=0.05)
    wait_until(lambda: len(running.frames) > 2, 60)
    running.child.cancel()
    ended = running.end(20)
    assert ended.exit_code == 1
    assert ended.failed.kind == "interrupted"
    assert 0 < len(ended.trace()) < 100_000


def test_the_group_dies_with_its_leader(watch: Watch) -> None:
    running = watch("has-grandchild")
    ended = running.end()
    assert ended.exit_code == 0
    grandchild = int(ended.log.split(b"grandchild ")[1].split()[0])
    deadline = time.monotonic() + 5  # it was killed before the end was told, and dies when the kernel gets to it
    while is_alive(grandchild) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_alive(grandchild)


def test_a_workload_sees_no_secret_and_an_empty_stdin(watch: Watch, secrets: None) -> None:
    with Launcher(warm=False) as launcher:
        ended = watch("talks", launcher).end()
    assert ended.exit_code == 0
    text = ended.log.decode()
    assert "hunter2" not in text
    assert "AMPBOARD_" not in text
    assert "PATH=" in text
    assert "stdin: ''" in text
    assert text.split("cwd: ")[1].split()[0].endswith("/scratch")
    assert "odd bytes: \\udcff" in text


def test_a_run_whose_stdin_ends_dies_with_its_own_group_only(tmp_path: Path) -> None:
    config = msgspec.json.encode(run_config("loops-forever", tmp_path)) + b"\n"
    with (tmp_path / "events").open("wb") as events:
        command = [sys.executable, "-m", "amp_core", "run", "--events-fd", str(events.fileno())]
        done = subprocess.run(command, input=config, pass_fds=[events.fileno()], capture_output=True)
    assert done.returncode == -signal.SIGKILL


def test_a_configuration_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with path.open("wb") as events:
        command = [sys.executable, "-m", "amp_core", "run", "--events-fd", str(events.fileno())]
        done = subprocess.run(command, input=b"{}\n", pass_fds=[events.fileno()], capture_output=True)
    assert done.returncode == 1
    (frame,) = read_frames(io.BytesIO(path.read_bytes()))
    assert isinstance(frame.event, Failed)
    assert "the first line of stdin is no run configuration" in frame.event.message
