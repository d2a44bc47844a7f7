"""ampboard: a server process on a SQLite file, the SDK in this process, reads over HTTP."""

from __future__ import annotations

import functools
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from amp_core import tracking
from server.accounts import service
from server.db.backup import vacuum
from server.db.engine import Database
from server.db.tables import Run
from server.db.upgrade import open_database
from server.metrics.codec import Points
from server.metrics.write import store_arrivals
from server.settings import Settings
from tests.bench_store.work import VIEW_POINTS, Timed, best_ms, calls, num_bytes, values
from tests.histories import add_experiment, add_run

BINARY = "application/vnd.ampboard.series"
SERVE = """
from server.app import serve
from server.settings import Settings
serve(Settings(), lambda url: print(url, flush=True))
"""


class Site:
    """A running server, its database, and one kept connection to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(data_dir=folder, port=0)
        self.database: Database = open_database(self.settings)
        with self.database.write() as session:
            user = service.create_user(session, "bench", "admin")
            _, self.token = service.create_token(session, user, "bench")
        environment = {
            **os.environ,
            "AMPBOARD_DATA_DIR": str(folder),
            "AMPBOARD_PORT": "0",
            "AMPBOARD_LOG_LEVEL": "WARNING",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self._http = http.client.HTTPConnection(self.url.removeprefix("http://"))

    def get(self, path: str, accept: str = "application/json", tag: str = "") -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, **({"If-None-Match": tag} if tag else {})}
        self._http.request("GET", path, headers=headers)
        try:
            response = self._http.getresponse()
        except http.client.RemoteDisconnected:  # an idle connection is closed after some seconds
            self._http.close()
            self._http.request("GET", path, headers=headers)
            response = self._http.getresponse()
        content = response.read()
        assert response.status in (200, 304), (response.status, content[:300])
        self.tag = response.headers.get("etag", "")
        return content

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.database.dispose()


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """A server on a fresh folder, stopped afterwards."""
    folder.mkdir(parents=True)
    made = Site(folder)
    try:
        yield made
    finally:
        made.close()


def logging(folder: Path, num_steps: int, num_metrics: int, rounds: int = 2) -> dict[str, float]:
    """Rate until durable and cost of a call, by the SDK; bytes of the whole data folder when the server has stopped.

    The better of two rounds with one server, as the peers have it in one process: the first pays what a process pays
    once, and the server is a process of its own, which another program may keep from running.
    """
    made = calls(num_steps, num_metrics)
    found = []
    with site(folder) as at:
        empty = num_bytes(str(folder))
        for _ in range(rounds):
            run = tracking.init("bench", url=at.url, token=at.token)
            timed = Timed(run.log)
            found.append(timed.run(made, functools.partial(run.finish, 600)))
            told = json.loads(at.get(f"/api/v1/runs/{run.id}"))["metrics"]
            assert sum(series["num_points"] for series in told.values()) == num_steps * num_metrics
    vacuum(at.settings.sqlalchemy_url)
    best = max(found, key=lambda figures: figures["points_per_s"])
    best["first_points_per_s"] = found[0]["points_per_s"]
    best["bytes_per_point"] = (num_bytes(str(folder)) - empty) / (rounds * num_steps * num_metrics)
    return best


def reading(at: Site, length: int) -> dict[str, float]:
    """One series of a run that has ended, whole and as a chart, over HTTP."""
    run_id = fill(at.database, length)
    whole = f"/api/v1/runs/{run_id}/series/{quote('train/loss')}?max_points={max(16, min(length, 1_000_000))}"
    view = f"/api/v1/runs/{run_id}/series/{quote('train/loss')}?max_points={VIEW_POINTS}"
    figures = {"view_ms": best_ms(lambda: at.get(view), 7)}
    shown = json.loads(at.get(view))
    highest = max(values(min(length, 500_000), 1))  # the spike, in all but short series
    assert (shown["num_stored"], max(map(float, shown["values"]))) == (length, highest)
    tag = at.tag
    figures["again_ms"] = best_ms(lambda: at.get(view, tag=tag), 7)
    start = length // 2
    zoom = f"{view}&from={start}&to={start + min(length // 10, 100_000)}"
    figures["zoom_ms"] = best_ms(lambda: at.get(zoom), 7)
    if length <= 1_000_000:
        figures["whole_ms"] = best_ms(lambda: parsed(at.get(whole, BINARY)), 3)
        figures["whole_json_ms"] = best_ms(lambda: json.loads(at.get(whole)), 1)
    return figures


def fill(database: Database, length: int) -> int:
    """A completed run with one series."""
    run_id = add_run(database, add_experiment(database, state="ended"))
    size = 500_000
    for number, start in enumerate(range(0, length, size), 1):
        steps = np.arange(start, min(start + size, length))
        times = 1.7e9 + steps * 0.01 + np.random.default_rng(number).normal(0, 1e-4, len(steps))
        points = Points(steps=steps, values=np.array(values(len(steps), number)), times=times)
        with database.write() as session:
            store_arrivals(session, run_id, 1, [(number, {"train/loss": points})], folds=True)
    with database.write() as session:
        run = session.get_one(Run, run_id)
        run.state, run.ended_at = "completed", run.created_at
        run.experiment.judged_at = run.created_at
    return run_id


def parsed(content: bytes) -> list[Any]:
    """The arrays of a binary answer, as a client takes them."""
    place = 16 + int.from_bytes(content[8:16], "little")
    (item,) = json.loads(content[16:place])["series"]
    size = item["num_points"]
    return [
        np.frombuffer(content, kind, size, place + 8 * size * part) for part, kind in enumerate(("<i8", "<f8", "<f8"))
    ]


def searching(at: Site, num_runs: int) -> dict[str, float]:
    """A list of runs filtered by metric and parameter, and sorted by metric: by HTTP, and the query alone."""
    from server.runs.queries import RunFilter
    from server.runs.table import filtered, list_runs
    from tests.bench_store.many_runs import add_runs

    add_runs(at.database, num_runs)
    query = "acc>0.5 lr=3"
    url = f"/api/v1/runs?q={quote(query)}&limit=50"
    assert len(json.loads(at.get(url))["items"]) == 50

    def listed(sort: str) -> Callable[[], object]:
        def read() -> object:
            with at.database.read() as session:
                return list_runs(session, RunFilter(q=query), sort=sort)

        return read

    def found() -> object:
        with at.database.read() as session:
            return session.execute(
                filtered(RunFilter(q=query)).with_only_columns(Run.id).order_by(Run.id.desc()).limit(50)
            ).all()

    return {
        "num_runs": num_runs,
        "search_ms": best_ms(lambda: at.get(url), 9),
        "sorted_ms": best_ms(lambda: at.get(f"{url}&sort=-acc"), 9),
        "list_ms": best_ms(listed("-created"), 9),
        "query_ms": best_ms(found, 9),
    }


def measure(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Everything that is asked of the peers, and a series ten times as long."""
    figures: dict[str, Any] = {
        name: logging(folder / f"log{name}", num_steps, num_metrics) for name, num_steps, num_metrics in job["logging"]
    }
    with site(folder / "read") as at:
        for length in job["lengths"]:
            figures[f"read {length}"] = reading(at, length)
    with site(folder / "runs") as at:
        figures["runs"] = searching(at, job["runs"])
    return figures
