"""How fast runs are handed out: `make bench-queue` prints claims per second, dispatch overhead, and the claim's time.

A thousand one-step runs are drained by two workers, each a process of its own that claims and finishes as a worker's
store does, on SQLite and on a real PostgreSQL. Then a single claim is timed with ten thousand rows of history behind
it, and with a long queue before it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles

from postgres_server import NoPostgresError, postgres_server
from queue_rows import Queue
from sqlalchemy import create_engine, insert, make_url, text

from server.db.engine import Database
from server.db.tables import Attempt, Run
from server.db.upgrade import upgrade
from server.queue.claim import claim
from server.queue.clock import store_now
from server.queue.finish import finish
from server.queue.forecast import forecast
from server.queue.policy import Policy
from server.queue.snapshot import read_cluster, read_queue

HISTORY = 10_000
CLAIMS = 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        _bench("SQLite", f"sqlite:///{Path(folder) / 'bench.sqlite3'}", runs)
    try:
        with _postgres() as url:
            _bench("PostgreSQL", url, runs)
    except NoPostgresError as error:
        print(f"PostgreSQL: not measured: {error}")
    return 0


@contextmanager
def _postgres() -> Iterator[str]:
    with postgres_server() as server_url:
        name = f"ampboard_bench_{time.time_ns()}"
        engine = create_engine(server_url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
        finally:
            with engine.connect() as connection:
                connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
            engine.dispose()


def _bench(name: str, url: str, runs: int) -> None:
    upgrade(url)
    database = Database(url)
    with database.write() as session:
        queue = Queue(session)
        for number in range(runs // 10):
            queue.experiment(10, priority=number % 3)
        now = store_now(session)
        for worker_id in (1, 2):
            queue.worker(worker_id).heartbeat_at = now + timedelta(hours=1)
    print(f"{name}: {runs} one-step runs, two workers")
    taken, wall_s = _drain(url)
    doubled = sum(count - 1 for count in Counter(run for run, *_ in taken).values())
    claims = sorted(claim_s for _, claim_s, _ in taken)
    ends = sorted(finish_s for *_, finish_s in taken)
    print(f"  {len(taken) / wall_s:.0f} runs per second; {len(taken)} claimed, {doubled} of them twice")
    print(
        f"  claim {_spell(claims)}; finish {_spell(ends)}; dispatch overhead per run {wall_s / len(taken) * 2e3:.1f} ms"
    )
    _history(database)
    for waiting in (10, 1000):
        _claims(database, waiting)
    database.dispose()


def _drain(url: str) -> tuple[list[tuple[int, float, float]], float]:
    """Every (run, seconds to claim, seconds to finish) of two processes, and the wall time."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    results: multiprocessing.Queue[list[tuple[int, float, float]]] = context.Queue()
    workers = [context.Process(target=_work, args=(url, worker_id, barrier, results)) for worker_id in (1, 2)]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    taken = [item for _ in workers for item in results.get()]
    wall_s = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return taken, wall_s


def _work(url: str, worker_id: int, barrier: object, results: object) -> None:
    database = Database(url)
    with database.read() as session:
        store_now(session)
    barrier.wait()  # type: ignore[attr-defined]  # of the spawning context
    taken = []
    while True:
        began = time.perf_counter()
        with database.write() as session:
            claimed = claim(session, worker_id, ["cpu"], 3600)
        middle = time.perf_counter()
        if claimed is None:
            break
        with database.write() as session:
            finish(session, claimed.run_id, claimed.attempt, "completed")
        taken.append((claimed.run_id, middle - began, time.perf_counter() - middle))
    results.put(taken)  # type: ignore[attr-defined]
    database.dispose()


def _history(database: Database) -> None:
    """Completed runs with their attempts, as years of use leave them."""
    with database.write() as session:
        now = store_now(session)
        first = 1_000_000
        row = {"experiment_id": 1, "kind": "train", "role": "baseline", "recipe_name": "32-true", "recipe": {},
               "seed": 0, "steps": 10, "config": {"device": "cpu"}, "state": "completed", "attempt": 1,
               "created_at": now, "started_at": now, "ended_at": now}  # fmt: skip
        session.execute(insert(Run), [{"id": first + number, **row} for number in range(HISTORY)])
        tried = {"number": 1, "worker_name": "host-1", "started_at": now, "ended_at": now, "charged_at": now}
        session.execute(insert(Attempt), [{"run_id": first + number, **tried} for number in range(HISTORY)])


def _claims(database: Database, waiting: int) -> None:
    with database.write() as session:
        queue = Queue.over(session)
        for _ in range(max(1, (waiting + CLAIMS) // 10)):
            queue.experiment(10)
    took = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        with database.write() as session:
            claimed = claim(session, 1, ["cpu"], 3600)
        took.append(time.perf_counter() - began)
        assert claimed is not None
        with database.write() as session:
            finish(session, claimed.run_id, claimed.attempt, "completed")
    began = time.perf_counter()
    with database.read() as session:
        now = store_now(session)
        queued = read_queue(session)
        turns = forecast(queued, read_cluster(session, now, Policy(lease_s=3600), {}), 3600.0)
    forecast_s = time.perf_counter() - began
    print(
        f"  {HISTORY} runs of history, about {waiting} waiting: claim {_spell(sorted(took))}; "
        f"turns of {len(turns)} waiting runs {forecast_s * 1e3:.0f} ms"
    )


def _spell(seconds: list[float]) -> str:
    return f"{median(seconds) * 1e3:.2f} ms (95 %: {quantiles(seconds, n=20)[-1] * 1e3:.2f} ms)"


if __name__ == "__main__":
    raise SystemExit(main())
