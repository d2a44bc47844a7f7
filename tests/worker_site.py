"""A place with a store, a broker, workload files and real worker processes, for tests that kill things."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
from sqlalchemy import select

from server.broker.embedded import EmbeddedBroker
from server.broker.publish import ring
from server.db.engine import Database
from server.db.tables import Attempt, Experiment, Log, Project, Run, User, Workload
from server.db.upgrade import open_database
from server.metrics.read import window
from server.settings import Settings
from server.version import VERSION
from worker.workload_files import BUNDLED, source_hash
from worker.workload_rows import DESCRIBED_BY

TIMINGS = {
    "AMPBOARD_LEASE_S": "2",
    "AMPBOARD_HEARTBEAT_S": "0.5",
    "AMPBOARD_SWEEP_S": "0.5",
    "AMPBOARD_WORKER_THREADS": "1",
}
T = TypeVar("T")
FINAL = ("completed", "failed", "cancelled")
FP32 = {"name": "32-true", "precision": "32-true"}

TINY = """
import time
import torch
from torch import nn
from amp_core.workload import Workload


class Tiny(Workload):
    '''A few hundred fast steps.'''

    pause_s: float = 0.01

    def model(self):
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1))

    def batches(self, split, seed):
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(16 if split == "train" else 2):
            time.sleep(self.pause_s)
            x = torch.randn(32, 8, generator=generator)
            yield x, x.sum(1, keepdim=True)
"""


def misbehaving(name: str, body: str) -> str:
    """A copy of the tiny workload whose loss runs ``body`` first; ``self.calls`` counts the steps."""
    loss = ["", "calls = 0", "", "def loss(self, model, batch):", "    self.calls += 1", textwrap.indent(body, " " * 4),
            "    return super().loss(model, batch)", ""]  # fmt: skip
    return TINY.replace("class Tiny(", f"class {name}(") + textwrap.indent("\n".join(loss), " " * 4)


class Site:
    """One data folder, its store, and the workers started here. Use as a context manager."""

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.workloads = folder / "workloads"
        self.workloads.mkdir()
        named = {"AMPBOARD_DATA_DIR": str(folder / "data"), "AMPBOARD_WORKLOADS": str(self.workloads)}
        self.environment = {**os.environ, **TIMINGS, **named, **(environment or {})}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.other_data_dirs: set[Path] = set()
        with _environment(self.environment):
            self.settings = Settings()
        self.database: Database = open_database(self.settings)

    def __enter__(self) -> Site:
        with self.database.write() as session:
            now = datetime.now(UTC)
            session.add(User(id=1, name="ann", role="admin", created_at=now))
            session.add(Project(id=1, name="default", created_at=now))
        for path in BUNDLED.glob("[a-z]*.py"):
            self._list(path, path.stem.replace("_", "-"))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            self.stop(process)
        if self.settings.embedded_broker:
            for data_dir in (self.settings.data_dir, *self.other_data_dirs):  # a worker elsewhere starts its own
                EmbeddedBroker(self.settings.model_copy(update={"data_dir": data_dir})).stop()
        self.database.dispose()

    def start_worker(self, name: str = "one", **environment: str) -> subprocess.Popen[bytes]:
        """A real worker process; its log is ``NAME.log`` in the folder."""
        return self.start([sys.executable, "-m", "worker"], name, AMPBOARD_WORKER_NAME=name, **environment)

    def start(self, command: list[str], name: str, **environment: str) -> subprocess.Popen[bytes]:
        if "AMPBOARD_DATA_DIR" in environment:
            self.other_data_dirs.add(Path(environment["AMPBOARD_DATA_DIR"]))
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env={**self.environment, **environment}, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        return process

    @staticmethod
    def stop(process: subprocess.Popen[bytes]) -> int:
        """End it in an orderly way; kill it only when that takes long."""
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(25)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def add_workload(self, source: str, stem: str) -> None:
        """Write a workload file; its class is named like the file."""
        path = self.workloads / f"{stem}.py"
        path.write_text(source)
        self._list(path, stem)

    def submit(
        self,
        workload: str,
        *,
        seeds: int = 1,
        first_seed: int = 0,
        steps: int = 100,
        kind: str = "train",
        **config: Any,
    ) -> list[int]:
        """Queue one run per seed, in FP32 unless ``recipe`` says otherwise, and ring the doorbell."""
        row = self._workload(workload)
        columns = {name: config.pop(name) for name in ("max_attempts", "priority", "num_hosts") if name in config}
        params, recipe = config.pop("params", {}), config.pop("recipe", FP32)
        now = datetime.now(UTC)
        with self.database.write() as session:
            experiment = Experiment(
                project_id=1, workload_id=row.id, owner_id=1, name="test", state="queued", plan={}, created_at=now
            )
            session.add(experiment)
            session.flush()
            place = {
                "workload": {"name": row.name, "path": row.path, "params": params},
                "device": "cpu",
                "eval_every": 50,
            }
            runs = [
                Run(experiment_id=experiment.id, kind=kind, role="baseline", recipe_name=recipe["name"], recipe=recipe,
                    seed=seed, steps=steps, config={**place, **config}, state="queued",
                    created_at=now, **columns)
                for seed in range(first_seed, first_seed + seeds)
            ]  # fmt: skip
            session.add_all(runs)
            session.flush()
            run_ids = [run.id for run in runs]
        ring(self.settings, len(run_ids))
        return run_ids

    def run(self, run_id: int) -> Run:
        with self.database.read() as session:
            return session.get_one(Run, run_id)

    def await_end(self, run_id: int, timeout_s: float = 60) -> Run:
        """The run once it has ended."""
        return wait_for(
            lambda: run if (run := self.run(run_id)).state in FINAL else None,
            f"run {run_id} goes on",
            timeout_s,
            self.logs,
        )

    def await_step(self, run_id: int, step: int, attempt: int = 1, timeout_s: float = 60) -> None:
        """Return once that step of that attempt is stored with its points: an event may tell of a step before them."""

        def is_stored() -> bool:
            run = self.run(run_id)
            return run.attempt == attempt and run.step >= step and max(self.series(run_id)[0], default=0) >= step

        wait_for(
            is_stored,
            f"run {run_id} has not reached step {step}",
            timeout_s,
            self.logs,
        )

    def children(self) -> list[int]:
        """The processes that train now: each works in its run's scratch folder."""
        scratch = str(self.settings.data_dir / "scratch")
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cwd().startswith(scratch):
                    found.append(process.pid)
        return found

    def attempts(self, run_id: int) -> list[Attempt]:
        with self.database.read() as session:
            return list(session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number)))

    def experiment(self, run_id: int) -> Experiment:
        with self.database.read() as session:
            return session.get_one(Experiment, session.get_one(Run, run_id).experiment_id)

    def series(self, run_id: int, name: str = "train/loss") -> tuple[list[int], list[float]]:
        """Steps and values as stored, exact."""
        with self.database.read() as session:
            points = window(session, run_id, name, max_points=1_000_000).points
        return points.steps.tolist(), points.values.tolist()

    def log(self, run_id: int) -> str:
        with self.database.read() as session:
            return "".join(
                session.scalars(select(Log.text).where(Log.run_id == run_id).order_by(Log.attempt, Log.position))
            )

    def logs(self) -> str:
        """The end of every process's own log, for a failing test."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in self.folder.glob("*.log")
        )

    def _list(self, path: Path, name: str) -> None:
        """List a file as a worker would have, so that no test waits for torch to be imported once more."""
        now = datetime.now(UTC)
        with self.database.write() as session:
            session.add(
                Workload(name=name, source_hash=source_hash(path), path=str(path), first_seen_at=now, seen_at=now,
                         description={DESCRIBED_BY: VERSION}, error=None)
            )  # fmt: skip

    def _workload(self, name: str) -> Workload:
        with self.database.read() as session:
            query = select(Workload).where(Workload.name == name).order_by(Workload.seen_at.desc()).limit(1)
            return session.scalars(query).one()


def wait_for(probe: Callable[[], T | None], failure: str, timeout_s: float = 30, logs: Callable[[], str] = str) -> T:
    """The first true value of the probe."""
    deadline = time.monotonic() + timeout_s
    while not (value := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{failure} after {timeout_s:g} s\n{logs()}")
        time.sleep(0.03)
    return value


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    saved = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)
