"""A worker's name belongs to one live process; its successor takes its row and its runs over."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from queue_rows import Queue

from server.db.engine import Database
from server.db.tables import Run, Worker
from server.queue.claim import claim
from server.settings import Settings
from worker.devices import inventory
from worker.registry import NameTaken, register, sign_off, take_back

SLOTS = inventory(1)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, worker_name="bench")


def test_a_new_name_gets_a_row_with_its_devices(database: Database, settings: Settings) -> None:
    with database.write() as session:
        worker = session.get_one(Worker, register(session, settings, SLOTS))
        assert (worker.name, worker.state, worker.pid) == ("bench", "online", os.getpid())
        assert worker.devices[-1]["kind"] == "cpu"


def test_a_dead_processs_row_and_runs_are_taken_over(database: Database, settings: Settings) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with database.write() as session:
        (run_id,) = Queue(session).experiment()
        first = register(session, settings, SLOTS)
        session.get_one(Worker, first).pid = gone.pid
        assert claim(session, first, ["cpu"], 60) is not None
        assert register(session, settings, SLOTS) == first
        (lost,) = take_back(session, first, "bench")
        assert (lost.run_id, lost.state) == (run_id, "queued")


def test_a_live_process_keeps_its_name(database: Database, settings: Settings) -> None:
    living = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with database.write() as session:
            first = register(session, settings, SLOTS)
            worker = session.get_one(Worker, first)
            worker.pid, worker.started_at = living.pid, datetime.now(UTC)
            session.flush()
            with pytest.raises(NameTaken, match="AMPBOARD_WORKER_NAME"):
                register(session, settings, SLOTS)
            worker.started_at = datetime.now(UTC) - timedelta(hours=1)
            session.flush()
            assert register(session, settings, SLOTS) == first, "a process begun later has only inherited the number"
    finally:
        living.kill()
        living.wait()


def test_on_another_host_the_heartbeat_tells(database: Database, settings: Settings) -> None:
    with database.write() as session:
        first = register(session, settings, SLOTS)
        worker = session.get_one(Worker, first)
        worker.host = "elsewhere"
        session.flush()
        with pytest.raises(NameTaken, match="elsewhere"):
            register(session, settings, SLOTS)
        worker.heartbeat_at = datetime.now(UTC) - timedelta(minutes=5)
        session.flush()
        assert register(session, settings, SLOTS) == first


def test_signing_off_gives_runs_back_without_a_charge(database: Database, settings: Settings) -> None:
    with database.write() as session:
        (run_id,) = Queue(session).experiment()
        worker_id = register(session, settings, SLOTS)
        assert claim(session, worker_id, ["cpu"], 60) is not None
        sign_off(session, worker_id, "bench")
        run = session.get_one(Run, run_id, populate_existing=True)
        assert (run.state, run.attempt, run.max_attempts) == ("queued", 1, 3)
        assert session.get_one(Worker, worker_id, populate_existing=True).state == "offline"
