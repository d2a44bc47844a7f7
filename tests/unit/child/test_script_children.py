"""A script as a child process: events, log, exit codes, cancel, pause, resume, its own environment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests_child import Watched, is_alive, wait_until

from amp_core.config import WorkloadRef, parse_recipe
from amp_core.events import Checkpointed, Evaluated, Failed, Finished, Paused, Started
from amp_core.launcher import Launcher

Watch = Callable[..., Watched]

WORKLOADS = """
from amp_core import Metric, ScriptWorkload
from amp_core.workload import param


class Mine(ScriptWorkload):
    '''A script with a parameter.'''

    script = "below/train.py"
    env = {"GREETING": "hello from the workload"}
    args = ("--lr", "{lr}", "--mode", "{mode}", "--steps", "{steps}", "--seed", "{seed}")
    primary = Metric("loss", higher_is_better=False, margin=0.1)
    lr: float = param(0.01, min=0)
    mode: str = "good"
"""
SCRIPT = """
import os, sys, time
import torch
from torch import nn
import amp_core

print("arguments", sys.argv[1:], os.environ["GREETING"], "cwd", os.getcwd(), flush=True)
print("secret" if any("hunter2" in value for value in os.environ.values()) else "no secret", flush=True)
mode = sys.argv[4]
if mode == "no-engine":
    raise SystemExit(0)
if mode == "slow-start":
    print("pid", os.getpid(), flush=True)
    time.sleep(60)
amp = amp_core.Engine.from_env()
assert amp.params["mode"] == mode and str(amp.seed) == sys.argv[8]
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[2]))
amp.prepare(model, optimizer)
if mode == "pid":
    print("pid", os.getpid(), flush=True)
while True:
    for x in amp.batches(torch.randn(40, 8, 4)):
        with amp.step() as s:
            optimizer.zero_grad()
            s.backward(model(x).square().mean())
            optimizer.step()
        if mode in ("slow", "pid"):
            time.sleep(0.05)
        if mode == "raises" and amp.loop.record.number == 5:
            raise ValueError("the fifth step is bad")
        if mode == "kills" and amp.loop.record.number == 5:
            os.kill(os.getpid(), 11)
        if mode == "contract" and amp.loop.record.number == 5:
            optimizer.step()
    if amp.should_stop:
        break
amp.evaluated({"loss": 0.5}, samples=8)
if mode == "exits":
    sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path, watch: Watch) -> Callable[..., Watched]:
    """``script(mode)`` launches the script above in that mode."""
    (tmp_path / "files" / "below").mkdir(parents=True)
    path = tmp_path / "files" / "mine.py"
    path.write_text(WORKLOADS)
    (path.parent / "below" / "train.py").write_text(SCRIPT)

    def launch(mode: str, **fields: object) -> Watched:
        ref = WorkloadRef(name="mine", path=str(path), params={"mode": mode})
        return watch("mine", workload=ref, **fields)

    return launch


def test_a_script_runs_to_its_end(script: Callable[..., Watched], secrets: None) -> None:
    ended = script("good", recipe=parse_recipe("bf16-mixed")).end()
    assert ended.exit_code == 0, ended.log
    started = ended.all(Started)[0]
    assert started.environment["recipe"]["precision"] == "bf16-mixed"
    assert started.environment["script"]["path"].endswith("train.py")
    assert len(ended.trace()) == 12
    assert isinstance(ended.frames[-1].event, Finished)
    assert ended.frames[-1].event.metrics == {"loss": 0.5}
    assert ended.all(Evaluated)[-1].final
    assert [frame.sequence for frame in ended.frames] == list(range(1, len(ended.frames) + 1))
    log = ended.log.decode()
    assert "'--lr', '0.01', '--mode', 'good', '--steps', '12', '--seed', '3'" in log
    assert "hello from the workload" in log
    assert "no secret" in log
    assert "files/below" in log


@pytest.mark.parametrize(
    ("mode", "kind", "message"),
    [
        ("raises", "exception", "ValueError: the fifth step is bad"),
        ("contract", "contract", "gradients of the step before"),
        ("exits", "exit", "exit code 3"),
        ("no-engine", "workload", "must call amp_core.Engine.from_env()"),
    ],
)
def test_how_it_fails_is_told(script: Callable[..., Watched], mode: str, kind: str, message: str) -> None:
    ended = script(mode).end()
    assert ended.exit_code == 1
    assert ended.failed.kind == kind
    assert message in ended.failed.message
    assert not ended.all(Finished)


def test_a_signal_ends_the_child_as_it_ended_the_script(script: Callable[..., Watched]) -> None:
    ended = script("kills").end()
    assert ended.exit_code == -signal.SIGSEGV
    assert not ended.all(Finished)


def test_cancel_reaches_the_script(script: Callable[..., Watched]) -> None:
    running = script("slow", steps=100_000, flush_interval_s=0.0)
    wait_until(lambda: len(running.trace()) >= 3, 60)
    running.child.cancel()
    ended = running.end(30)
    assert ended.failed.kind == "interrupted"
    assert len(ended.all(Failed)) == 1


def test_pause_writes_a_checkpoint_and_the_next_attempt_goes_on(script: Callable[..., Watched], tmp_path: Path) -> None:
    fields = {"steps": 30, "flush_interval_s": 0.0, "checkpoint_dir": str(tmp_path / "kept")}
    calm = script("good", steps=30).end()
    running = script("slow", **fields)
    wait_until(lambda: len(running.trace()) >= 3, 60)
    running.child.pause()
    ended = running.end(30)
    assert ended.all(Paused), ended.log
    newest = ended.all(Checkpointed)[-1]
    resumed = script("slow", attempt=2, resume_from=(newest.path,), **fields).end()
    assert resumed.all(Started)[0].resumed_step == newest.step or "another workload" in str(resumed.all(Started)[0])
    assert ended.trace()[: newest.step] + resumed.trace() == calm.trace()


@pytest.mark.parametrize("mode", ["pid", "slow-start"])
def test_the_script_dies_with_the_child(script: Callable[..., Watched], mode: str) -> None:
    running = script(mode, steps=100_000)
    running.wait_for_log(b"\npid ")
    pid = int(running.log.split(b"\npid ")[1].split()[0])
    running.child.kill()
    running.end(10)
    wait_until(lambda: not is_alive(pid), 10)


def test_only_a_script_that_was_named_counts(tmp_path: Path) -> None:
    from amp_core.loader import describe

    path = tmp_path / "named.py"
    path.write_text(WORKLOADS)
    (described,) = describe(path)
    assert "is no file" in described["error"]
    (tmp_path / "below").mkdir()
    script = tmp_path / "below" / "train.py"
    script.write_text("raise AssertionError('nobody runs this to describe it')")
    (described,) = describe(path)
    assert described["error"] is None
    assert described["is_script"]
    script.write_text("changed = True")
    (again,) = describe(path)
    assert again["source_hash"] != described["source_hash"], "a changed script is another version"
    path.write_text(WORKLOADS.replace('"{mode}"', '"{nonsense}"'))
    assert "'{nonsense}'" in describe(path)[0]["error"]
    path.write_text(WORKLOADS.replace("below/train.py", "train.py"))
    (tmp_path / "train.py").write_text("")
    assert "a folder below" in describe(path)[0]["error"]
    assert "defines no workload" in describe(script)[0]["error"]


def test_another_interpreter(script: Callable[..., Watched], tmp_path: Path, cold: Launcher) -> None:
    """A shell script stands for the user's own Python; it says so and starts ours."""
    python = tmp_path / "files" / "python-of-mine"
    python.write_text(f'#!/bin/sh\necho "another interpreter"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    path = tmp_path / "files" / "mine.py"
    path.write_text(WORKLOADS.replace("    env =", '    python = "python-of-mine"\n    env ='))
    ended = script("good", launcher=cold).end()
    assert ended.exit_code == 0, ended.log
    assert b"another interpreter" in ended.log
    assert os.access(python, os.X_OK)
