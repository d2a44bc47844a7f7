"""``make bench-live``: many runs write while many browsers watch. Prints what was lost, how late it came, what it cost.

    python -m tests.bench_live [--seconds 120] [--runs 50] [--series 20] [--viewers 100] [--watch experiment|runs]

Three processes: the server, a writer that stores what workers would (one transaction a second and run), and a client
with all the viewers, which reads every message. The writer and the viewers take their share of the same cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from amp_core import events
from server.db.engine import Database
from server.metrics.write import store_frames
from tests.bench_store.__main__ import machine, say
from tests.bench_store.ours import Site, site
from tests.histories import add_experiment, add_run

WATCHED = 5  # series that an experiment's page asks for
SETTLE_S = 5.0
MEMORY_S = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("seconds", 120), ("runs", 50), ("series", 20), ("viewers", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--watch", choices=("experiment", "runs"), default="experiment")
    parser.add_argument("--role", choices=("bench", "writer", "viewers"), default="bench", help=argparse.SUPPRESS)
    parser.add_argument("--job", default="{}", help=argparse.SUPPRESS)
    given = parser.parse_args()
    job = json.loads(given.job)
    if given.role == "writer":
        write(job)
    elif given.role == "viewers":
        sys.stdout.write(json.dumps(asyncio.run(watch(job))))
    else:
        bench(given)


def bench(given: argparse.Namespace) -> None:
    say(machine())
    with tempfile.TemporaryDirectory(prefix="ampboard-live-") as folder, site(Path(folder) / "data") as at:
        experiment_id = add_experiment(at.database)
        run_ids = [add_run(at.database, experiment_id, steps=given.seconds) for _ in range(given.runs)]
        job = {
            "url": at.database.url, "runs": run_ids, "series": given.series, "seconds": given.seconds,
            "viewers": given.viewers, "watch": given.watch, "experiment": experiment_id, "token": at.token,
            "port": int(at.url.rpartition(":")[2]), "begin": time.time() + 3.0,
        }  # fmt: skip
        viewers, writer = _start("viewers", job), _start("writer", job)
        costs = follow(at, given.seconds)
        assert writer.wait(60) == 0
        told: dict[str, Any] = json.loads(viewers.communicate(timeout=120)[0])
        report(given, told, costs)


def _start(role: str, job: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench_live", "--role", role, "--job", json.dumps(job)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def follow(at: Site, seconds: int) -> list[tuple[float, int]]:
    """Processor seconds and resident bytes of the server, once a second."""
    process = psutil.Process(at.process.pid)
    found = []
    for _ in range(seconds + int(SETTLE_S) + 3):
        times = process.cpu_times()
        found.append((times.user + times.system, process.memory_info().rss))
        time.sleep(1)
    return found


def report(given: argparse.Namespace, told: dict[str, Any], costs: list[tuple[float, int]]) -> None:
    num_series = WATCHED if given.watch == "experiment" else given.series
    watched_runs = given.runs if given.watch == "experiment" else 1
    expected = given.viewers * watched_runs * num_series * given.seconds
    cpu = (costs[-int(SETTLE_S)][0] - costs[3][0]) / given.seconds
    parts = [costs[start : start + MEMORY_S] for start in range(0, len(costs) - MEMORY_S // 2, MEMORY_S)]
    memory = " ".join(f"{statistics.median(rss for _, rss in part) / 2**20:.1f}" for part in parts)
    lost = expected - told["points"]
    for line in (
        f"{given.runs} runs of {given.series} series at 1 Hz for {given.seconds} s, {given.viewers} viewers",
        f"  points to viewers  {told['points']:,} of {expected:,}: {lost:,} lost, {told['doubled']:,} doubled",
        f"  delay to a viewer  median {told['median_s']:.2f} s, 99th percentile {told['p99_s']:.2f} s",
        f"  server             {100 * cpu:.0f} % of a core",
        f"  its memory         {memory} MiB, each {MEMORY_S} s",
    ):
        say(line)
    say(machine())


def write(job: dict[str, Any]) -> None:
    """Store a point of every series of every run each second, the runs spread over the second."""
    database = Database(job["url"])
    rng = np.random.default_rng(0)
    for second in range(job["seconds"]):
        for place, run_id in enumerate(job["runs"]):
            due = job["begin"] + second + place / len(job["runs"])
            time.sleep(max(0.0, due - time.time()))
            now, step = time.time(), np.array([second + 1], "<i8").tobytes()
            columns = [
                events.Column(
                    name=f"s{n}", steps=step, values=rng.normal(size=1).tobytes(), times=np.array([now]).tobytes()
                )
                for n in range(job["series"])
            ]
            frame = events.Frame(sequence=second + 1, at=now, event=events.Segment(columns=columns))
            with database.write() as session:
                store_frames(session, run_id, 1, [frame])
    database.dispose()


async def watch(job: dict[str, Any]) -> dict[str, Any]:
    """Every viewer's points and their delays."""
    seen = [Viewer(job, number) for number in range(job["viewers"])]
    end = job["begin"] + job["seconds"] + SETTLE_S
    tasks = [asyncio.create_task(viewer.read()) for viewer in seen]
    await asyncio.sleep(max(0.0, end - time.time()))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    delays = sorted(delay for viewer in seen for delay in viewer.delays)
    return {
        "points": sum(viewer.num_points for viewer in seen),
        "doubled": sum(viewer.num_doubled for viewer in seen),
        "median_s": delays[len(delays) // 2] if delays else -1.0,
        "p99_s": delays[int(len(delays) * 0.99)] if delays else -1.0,
    }


class Viewer:
    """One browser: reads server-sent events and counts what they bring."""

    def __init__(self, job: dict[str, Any], number: int) -> None:
        self.num_points = self.num_doubled = 0
        self.delays: list[float] = []
        self._job = job
        self._seen: set[tuple[int, int]] = set()
        names = ",".join(f"s{n}" for n in range(WATCHED))
        one_run = f"/api/v1/runs/{job['runs'][number % len(job['runs'])]}/stream"
        self._path = (
            one_run if job["watch"] == "runs" else f"/api/v1/experiments/{job['experiment']}/stream?series={names}"
        )

    async def read(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._job["port"], limit=2**24)
        head = f"GET {self._path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._job['token']}\r\n\r\n"
        writer.write(head.encode())
        try:
            while line := await reader.readline():
                if line.startswith(b"data: ") and b'"series"' in line:
                    self._count(msgspec.json.decode(line[6:]))
        finally:
            writer.close()

    def _count(self, content: dict[str, Any]) -> None:
        key = (content.get("run_id", 0), content["sequence"])
        columns = content["series"].values()
        size = sum(len(column["steps"]) for column in columns)
        if key in self._seen:
            self.num_doubled += size
            return
        self._seen.add(key)
        self.num_points += size
        self.delays.append(time.time() - next(iter(columns))["times"][0])


if __name__ == "__main__":
    sys.exit(main())
