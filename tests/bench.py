"""``make bench``: what the store, the queue and the command line take on this machine. Prints figures, judges nothing.

Each figure is the median of several rounds on a fresh SQLite file. Close other programs before comparing two versions.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from server.db.engine import Database
from server.db.upgrade import upgrade
from server.metrics.read import window
from server.metrics.write import store_frames
from server.queue.claim import claim
from tests.histories import add_run, segment
from tests.queue_rows import Queue

NUM_SERIES = 20
STEPS_PER_FLUSH = 50
NUM_FLUSHES = 100
LONG_SERIES = 1_000_000
NUM_CLAIMS = 500


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in MEASUREMENTS.items():
            url = f"sqlite:///{folder}/{name.split()[0]}.sqlite3"
            upgrade(url)
            database = Database(url)
            try:
                sys.stdout.write(f"{name:<52}{measure(database)}\n")
                sys.stdout.flush()
            finally:
                database.dispose()


def store_points(database: Database) -> str:
    """Points per second until they are durable: 20 series, 50 steps a flush, one transaction a flush."""
    run_id = add_run(database)
    rng = np.random.default_rng(0)
    flushes = [
        segment(
            number,
            {
                f"metric/{series}": (range(first, first + STEPS_PER_FLUSH), rng.normal(size=STEPS_PER_FLUSH))
                for series in range(NUM_SERIES)
            },
        )
        for number, first in enumerate(range(0, NUM_FLUSHES * STEPS_PER_FLUSH, STEPS_PER_FLUSH), start=1)
    ]
    begin = time.perf_counter()
    for frame in flushes:
        with database.write() as session:
            store_frames(session, run_id, 1, [frame])
    seconds = time.perf_counter() - begin
    return f"{NUM_SERIES * STEPS_PER_FLUSH * NUM_FLUSHES / seconds:,.0f} points/s"


def read_long_series(database: Database) -> str:
    """A chart of 1,000 points over a series of a million."""
    run_id = add_run(database)
    values = np.random.default_rng(0).normal(size=LONG_SERIES)
    size = 10_000
    with database.write() as session:
        frames = [
            segment(number, {"train/loss": (range(first, first + size), values[first : first + size])})
            for number, first in enumerate(range(0, LONG_SERIES, size), start=1)
        ]
        store_frames(session, run_id, 1, frames)

    def read() -> None:
        with database.read() as session:
            window(session, run_id, "train/loss", max_points=1000)

    return f"{1e3 * median_s(read):.1f} ms"


def claim_runs(database: Database) -> str:
    """Claims per second from one worker, one transaction each."""
    with database.write() as session:
        Queue(session).experiment(NUM_CLAIMS)
    begin = time.perf_counter()
    for _ in range(NUM_CLAIMS):
        with database.write() as session:
            assert claim(session, 1, ["cpu"], 15.0) is not None
    return f"{NUM_CLAIMS / (time.perf_counter() - begin):,.0f} claims/s"


def start_command(_: Database) -> str:
    """Wall time of ``ampboard --help``."""
    command = [sys.executable, "-m", "server.cli", "--help"]
    return f"{1e3 * median_s(lambda: subprocess.run(command, capture_output=True, check=True)):.0f} ms"


def load_server(_: Database) -> str:
    """Wall time until a fresh interpreter has the whole web application loaded."""
    command = [sys.executable, "-c", "import server.app"]
    return f"{1e3 * median_s(lambda: subprocess.run(command, capture_output=True, check=True)):.0f} ms"


def median_s(call: Callable[[], object], rounds: int = 5) -> float:
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


MEASUREMENTS: dict[str, Callable[[Database], str]] = {
    "store 20 series x 50 steps a flush, durable": store_points,
    "window of 1,000 points over 1,000,000": read_long_series,
    "claim queued runs, one at a time": claim_runs,
    "ampboard --help": start_command,
    "load server.app": load_server,
}


if __name__ == "__main__":
    main()
