"""Supervision of small real processes that behave badly in ways a training never should."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from queue_rows import Queue
from sqlalchemy import select

from amp_core.child_process import ChildPipes, ColdChild
from amp_core.config import Recipe, RunConfig, WorkloadRef
from amp_core.launcher import Child, Launcher
from server.db.engine import Database
from server.db.tables import Event, Log, Run
from server.queue.claim import claim
from worker.active import Requests
from worker.record import Recorder
from worker.supervise import Limits, Supervision

CONFIG = RunConfig(
    run_id=1, attempt=1, workload=WorkloadRef(name="w", path="w.py"), recipe=Recipe(name="32-true", precision="32-true")
)
PREAMBLE = """
import os, subprocess, sys, time
from amp_core.events import *
def send(number, event):
    os.write(int(sys.argv[1]), encode_frame(Frame(sequence=number, at=1.0, event=event)))
def evaluated(number):
    send(number, Evaluated(step=number, metrics={"loss": 0.5}, num_samples=1, final=False))
def finished(number):
    send(number, Finished(metrics={}, steps=3, skipped_steps=0, samples=3, lost_samples=0, train_s=1.0, warmup_s=0.0))
"""


class ScriptLauncher(Launcher):
    """Starts a Python script in place of a training."""

    def __init__(self, script: str) -> None:
        super().__init__(warm=False)
        self._script = PREAMBLE + textwrap.dedent(script)

    def launch(self, config: RunConfig) -> Child:
        pipes = ChildPipes()
        stdin, log, events = pipes.theirs
        process = subprocess.Popen(
            [sys.executable, "-c", self._script, str(events)], stdin=stdin, stdout=log, stderr=log, pass_fds=[events],
            start_new_session=True,
        )  # fmt: skip
        pipes.close_theirs()
        return ColdChild(process, pipes)


@pytest.fixture
def claimed(database: Database) -> Database:
    """A store in which run 1 runs its first attempt."""
    with database.write() as session:
        Queue(session).experiment()
        assert claim(session, 1, ["cpu"], 60) is not None
    return database


def supervise(
    database: Database, folder: Path, script: str, requests: Requests | None = None
) -> tuple[Run, list[int], str]:
    """Run the script to its end; the run's row, the sequences of its stored events, and its log."""
    requests = requests or Requests()
    recorder = Recorder(database, folder, 1, 1, requests.lost)
    Supervision(recorder, ScriptLauncher(script), CONFIG, Limits(max_time_s=60, cancel_grace_s=0.5), requests).run()
    with database.read() as session:
        events = list(session.scalars(select(Event.sequence).order_by(Event.sequence)))
        log = "".join(session.scalars(select(Log.text).order_by(Log.position)))
        return session.get_one(Run, 1), events, log


def test_the_last_words_of_a_quick_child_are_all_kept(claimed: Database, tmp_path: Path) -> None:
    run, events, log = supervise(
        claimed, tmp_path, "for n in range(1, 2001): evaluated(n)\nfinished(2001)\nprint('x' * 100_000)"
    )
    assert run.state == "completed"
    assert events == list(range(1, 2002))
    assert log == "x" * 100_000 + "\n"


def test_garbage_on_the_event_pipe_ends_the_run_and_keeps_what_came_before(claimed: Database, tmp_path: Path) -> None:
    run, events, _ = supervise(
        claimed,
        tmp_path,
        "evaluated(1); evaluated(2)\nos.write(int(sys.argv[1]), b'\\x05\\0\\0\\0hello')\ntime.sleep(60)",
    )
    assert run.state == "failed"
    assert run.reason is not None
    assert run.reason["kind"] == "protocol"
    assert "after step 2" in run.reason["message"]
    assert events == [1, 2]


def test_a_crash_after_the_last_event_takes_nothing_away(claimed: Database, tmp_path: Path) -> None:
    run, _, _ = supervise(claimed, tmp_path, "finished(1)\nos.abort()")
    assert run.state == "completed"


def test_a_frame_cut_off_by_death_is_dropped(claimed: Database, tmp_path: Path) -> None:
    run, events, _ = supervise(
        claimed, tmp_path, "evaluated(1)\nos.write(int(sys.argv[1]), b'\\xff\\0\\0\\0half')\nos.kill(os.getpid(), 9)"
    )
    assert run.reason is not None
    assert run.reason["kind"] == "signal"
    assert events == [1]


def test_a_daemon_that_escaped_does_not_hold_the_run(claimed: Database, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"""
        evaluated(1)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        open({str(pid_file)!r}, "w").write(str(child.pid))
        finished(2)
    """
    begun = time.monotonic()
    run, events, _ = supervise(claimed, tmp_path, script)
    assert run.state == "completed"
    assert events == [1, 2]
    assert time.monotonic() - begun < 15
    psutil.Process(int(pid_file.read_text())).kill()


@pytest.mark.parametrize(
    ("request_name", "state"), [("lost", "running"), ("abandon", "running"), ("cancel", "cancelled")]
)
def test_requests_end_a_deaf_child(claimed: Database, tmp_path: Path, request_name: str, state: str) -> None:
    requests = Requests()
    threading.Timer(1.0, getattr(requests, request_name).set).start()
    begun = time.monotonic()
    run, events, _ = supervise(claimed, tmp_path, "evaluated(1)\nwhile True: time.sleep(1)", requests)
    assert time.monotonic() - begun < 10
    assert run.state == state
    assert events == [1]
    assert run.attempt == 1


def test_a_child_that_cannot_be_started_is_a_reason(claimed: Database, tmp_path: Path) -> None:
    class Broken(Launcher):
        def launch(self, config: RunConfig) -> Child:
            raise OSError(11, "Resource temporarily unavailable")

    recorder = Recorder(claimed, tmp_path, 1, 1, threading.Event())
    assert Supervision(recorder, Broken(warm=False), CONFIG, Limits(max_time_s=60), Requests()).run()
    with claimed.read() as session:
        reason = session.get_one(Run, 1).reason
    assert reason is not None
    assert reason["kind"] == "launch"
    assert "Resource temporarily unavailable" in reason["message"]
