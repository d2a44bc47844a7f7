"""A disk that is really full: a tmpfs of a few megabytes where mounting is allowed, else a limit on file sizes."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from histories import add_run, segment
from live_server import LiveServer
from sqlalchemy import func, select, text

from amp_core import events, tracking
from amp_core.tracking import run as tracked_run
from server.db.engine import Database
from server.db.errors import StoreFull, StoreUnavailable
from server.db.tables import Run
from server.metrics.read import window
from server.metrics.write import store_frames
from worker.ending import Ending
from worker.record import Recorder

SMALL_BYTES, LARGE_BYTES = 3 * 2**20, 64 * 2**20
POINTS = 2000
NUM_FRAMES = 400


class SmallDisk:
    """A folder that takes `SMALL_BYTES`, until somebody makes room. ``is_mounted``: a file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(folder)]
        self.is_mounted = (
            shutil.which("mount") is not None and subprocess.run(mount, capture_output=True).returncode == 0
        )
        self._soft, self._hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if not self.is_mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, self._hard))

    def make_room(self) -> None:
        if self.is_mounted:
            subprocess.run(["mount", "-o", f"remount,size={LARGE_BYTES}", str(self.folder)], check=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._soft, self._hard))

    def remove(self) -> None:
        self.make_room()
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    yield disk
    disk.remove()


@pytest.fixture
def full_soon(disk: SmallDisk, sqlite_template: Path) -> Iterator[Database]:
    """A database on the small disk."""
    shutil.copyfile(sqlite_template, disk.folder / "ampboard.sqlite3")
    database = Database(f"sqlite:///{disk.folder}/ampboard.sqlite3")
    yield database
    database.dispose()


def frame_of(number: int) -> events.Frame:
    """Noise, which does not compress; the same whenever it is asked for."""
    rng = random.Random(number)
    steps = list(range((number - 1) * POINTS, number * POINTS))
    return segment(number, {"noise": (steps, [rng.random() for _ in steps])})


def shown(database: Database, run_id: int) -> tuple[list[int], list[float]]:
    with database.read() as session:
        points = window(session, run_id, "noise", max_points=10_000_000).points
    return points.steps.tolist(), points.values.tolist()


def expected(num_frames: int) -> tuple[list[int], list[float]]:
    values = [value for number in range(1, num_frames + 1) for value in _noise(number)]
    return list(range(num_frames * POINTS)), values


def _noise(number: int) -> list[float]:
    rng = random.Random(number)
    return [rng.random() for _ in range(POINTS)]


def write_until_full(database: Database, run_id: int) -> int:
    """Store frame after frame; returns how many were stored before the disk was full."""
    for number in range(1, NUM_FRAMES):
        try:
            with database.write() as session:
                store_frames(session, run_id, 1, [frame_of(number)])
        except StoreUnavailable:
            return number - 1
    raise AssertionError("the disk was never full")


def test_what_was_told_to_be_stored_survives_a_full_disk_and_the_rest_goes_on(
    disk: SmallDisk, full_soon: Database
) -> None:
    run_id = add_run(full_soon)
    num_stored = write_until_full(full_soon, run_id)
    assert num_stored > 10
    assert shown(full_soon, run_id) == expected(num_stored), "reads are right while it is full"
    if disk.is_mounted:
        with pytest.raises(StoreFull, match="free some space; nothing was written"), full_soon.write() as session:
            store_frames(session, run_id, 1, [frame_of(number) for number in range(num_stored + 1, num_stored + 40)])
    disk.make_room()
    for first in range(1, num_stored + 40, 7):  # a client sends again what it got no answer to, and more
        with full_soon.write() as session:
            store_frames(session, run_id, 1, [frame_of(number) for number in range(first, first + 7)])
    num_frames = len(range(1, num_stored + 40, 7)) * 7
    assert shown(full_soon, run_id) == expected(num_frames)
    with full_soon.read() as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"


def test_a_worker_on_a_full_disk_keeps_what_runs_say_and_stores_it_when_there_is_room(
    disk: SmallDisk, full_soon: Database
) -> None:
    """Database and spool are on the same full disk: what neither takes waits in memory."""
    run_id = add_run(full_soon)
    num_stored = write_until_full(full_soon, run_id)
    recorder = Recorder(full_soon, disk.folder / "spool", run_id, 1, threading.Event())
    recorder.start()
    num_frames = num_stored + 60
    for number in range(num_stored + 1, num_frames + 1):
        recorder.put_frame(frame_of(number))
    gave_up = threading.Event()
    gave_up.set()
    assert not recorder.finish(None, gave_up), "there is no room yet"
    assert recorder.failure is None
    disk.make_room()
    assert recorder.finish(Ending(outcome="completed", exit_code=0), threading.Event())
    assert shown(full_soon, run_id) == expected(num_frames)
    assert list((disk.folder / "spool").glob("*")) == []
    with full_soon.read() as session:
        assert session.scalar(select(func.count()).where(Run.state == "completed")) == 1


def test_a_server_on_a_full_disk_says_so_answers_reads_and_goes_on_afterwards(
    disk: SmallDisk, full_soon: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked_run, "SEND_S", 0.05)
    monkeypatch.setattr(tracked_run, "RETRY_S", 0.1)
    server = LiveServer(full_soon, tmp_path)
    server.start()
    try:
        run = tracking.init(url=server.url, token=server.team.tokens["submitter"])
        write_until_full(full_soon, add_run(full_soon))
        values = [value for number in range(1, 21) for value in _noise(number)]
        for step, value in enumerate(values):
            run.log({"noise": value}, step=step)
        with server.client() as client:
            headers = {"Authorization": f"Bearer {server.team.tokens['submitter']}"}
            body = {"name": "x" * 200, "params": {f"p{n}": "y" * 300 for n in range(200)}}
            refused = client.post("/api/v1/runs", json=body, headers=headers)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert ("full" if disk.is_mounted else "cannot be used now") in refused.json()["detail"]
            assert client.get("/api/v1/runs").status_code == 200
        disk.make_room()
        run.finish(60)
        assert shown(full_soon, run.id) == (list(range(len(values))), values)
    finally:
        server.stop()
