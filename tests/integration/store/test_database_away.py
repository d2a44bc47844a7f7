"""PostgreSQL stops and comes back while runs write, a script logs and a browser follows: nothing lost, nothing doubled.

The outage takes TEST_OUTAGE_S seconds, by default a few: set it to 60 for the minute that the store promises.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from histories import add_experiment, add_run, segment
from live_server import LiveServer
from postgres_server import NoPostgresError, PostgresProcess, own_server
from sqlalchemy import func, select

from amp_core import tracking
from amp_core.tracking import run as tracked_run
from server.db.engine import Database
from server.db.tables import Run, Series
from server.db.upgrade import upgrade
from server.metrics.read import window
from worker.ending import Ending
from worker.record import Recorder

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]
OUTAGE_S = float(os.environ.get("TEST_OUTAGE_S", "4"))
NUM_WRITERS = 3
PERIOD_S = 0.05


@pytest.fixture
def postgres_process() -> Iterator[PostgresProcess]:
    started = own_server()
    try:
        server = started.__enter__()
    except NoPostgresError as error:
        pytest.skip(str(error))  # under CI a skip is a failure: see conftest.py
    yield server
    started.__exit__(None, None, None)


class Writers:
    """A thread that gives every run of some workers, and a tracked run, a point at each step."""

    def __init__(self, recorders: list[Recorder], tracked: tracking.TrackedRun) -> None:
        self.num_steps = 0
        self._recorders, self._tracked = recorders, tracked
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        while not self._stop.wait(PERIOD_S):
            step = self.num_steps + 1
            for place, recorder in enumerate(self._recorders):
                recorder.put_frame(segment(step, {"a": ([step], [float(place)]), "b": ([step], [-float(step)])}))
                recorder.put_log(f"{step} ")
            self._tracked.log({"a": 7.0}, step=step)
            self.num_steps = step

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.num_steps


class Viewer:
    """A browser that follows an experiment, and goes on from the last place when the stream ends."""

    def __init__(self, server: LiveServer, experiment_id: int) -> None:
        self.points: list[tuple[int, int]] = []
        self._stop = threading.Event()
        self._server, self._path = server, f"/api/v1/experiments/{experiment_id}/stream?series=a"
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        place = None
        while not self._stop.is_set():
            try:
                with self._server.stream(self._path, place) as messages:
                    for message in messages:
                        place = message.id or place
                        if message.event == "points":
                            steps = message.data["series"]["a"]["steps"]
                            self.points += [(message.data["run_id"], step) for step in steps]
                        if self._stop.is_set():
                            return
            except (httpx.HTTPError, AssertionError):
                time.sleep(0.2)

    def leave(self) -> None:
        self._stop.set()

    def join(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["shutdown", "crash"])
def test_nothing_is_lost_or_doubled_while_the_database_is_away(
    postgres_process: PostgresProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    monkeypatch.setattr(tracked_run, "SEND_S", 0.1)
    monkeypatch.setattr(tracked_run, "RETRY_S", 0.3)
    upgrade(postgres_process.url)
    database = Database(postgres_process.url)
    experiment_id = add_experiment(database)
    run_ids = [add_run(database, experiment_id) for _ in range(NUM_WRITERS)]
    server = LiveServer(database, tmp_path)
    server.start()
    workers = [Database(postgres_process.url) for _ in run_ids]
    recorders = [
        Recorder(own, tmp_path / "spool", run_id, 1, threading.Event())
        for own, run_id in zip(workers, run_ids, strict=True)
    ]
    for recorder in recorders:
        recorder.start()
    tracked = tracking.init(url=server.url, token=server.team.tokens["submitter"])
    viewer, writers = Viewer(server, experiment_id), Writers(recorders, tracked)
    try:
        wait_until(lambda: len(viewer.points) > 10, "the viewer sees nothing")
        postgres_process.stop(how)
        stopped_at = time.monotonic()
        check_answers_meanwhile(server)
        wait_until(lambda: len(list((tmp_path / "spool").glob("*.spool"))) == NUM_WRITERS, "nothing is spooled")
        time.sleep(max(0.0, OUTAGE_S - (time.monotonic() - stopped_at)))
        steps_before = writers.num_steps
        postgres_process.start()
        wait_until(lambda: writers.num_steps > steps_before + 20, "the writers stopped")
        num_steps = writers.stop()
        assert all(
            recorder.finish(Ending(outcome="completed", exit_code=0), threading.Event()) for recorder in recorders
        )
        tracked.finish(60)
        wait_until(lambda: len(viewer.points) >= NUM_WRITERS * num_steps, "the viewer misses points")
    finally:
        writers.stop()
        viewer.leave()
        server.stop()
        viewer.join()
    every = list(range(1, num_steps + 1))
    assert sorted(viewer.points) == [(run_id, step) for run_id in run_ids for step in every]
    with database.read() as session:
        for place, run_id in enumerate(run_ids):
            points = window(session, run_id, "a", max_points=100_000).points
            assert points.steps.tolist() == every
            assert set(points.values.tolist()) == {float(place)}
            assert window(session, run_id, "b", max_points=100_000).points.values.tolist() == [-step for step in every]
        assert window(session, tracked.id, "a", max_points=100_000).points.steps.tolist() == every
        assert set(session.scalars(select(Run.state))) == {"completed"}
        assert session.scalar(select(func.sum(Series.num_points))) == (2 * NUM_WRITERS + 1) * num_steps
    assert list((tmp_path / "spool").glob("*")) == []
    for own in (database, *workers):
        own.dispose()


def check_answers_meanwhile(server: LiveServer) -> None:
    """What people and programs are told while the database is away; the server itself stays up."""
    with server.client() as client:
        for path in ("/api/v1/runs", "/api/v1/experiments"):
            answer = client.get(path)
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["retry-after"]) > 0
            assert "the database server cannot be reached" in answer.json()["detail"]
        page = client.get("/experiments", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["retry-after"]) == (503, "5")
        assert "the database server cannot be reached" in page.text
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
