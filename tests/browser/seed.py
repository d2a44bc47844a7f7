"""A history for looking at pages: experiments whose runs are written as a worker writes them, from made-up figures.

    python tests/browser/seed.py DATA_DIR        (an empty folder; prints a sign-in URL path)

The figures are shaped like real trainings (a spike, overflows, a NaN, a hostile and a very long name among them), and
serve screenshots, layout tests and load measurements only.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from made_up import BROKEN, WORKLOADS, Shape, benchmark, column, picture, training
from sqlalchemy import select, update

from amp_core import events
from server.access import Principal
from server.accounts import service as accounts
from server.comparisons.service import judge_ended
from server.db.engine import Database
from server.db.tables import Attempt, Experiment, Run, Worker, Workload
from server.db.upgrade import open_database
from server.experiments import service
from server.experiments.schemas import ExperimentIn
from server.metrics.write import store_frames, store_log
from server.queue.claim import ClaimedRun, claim
from server.queue.finish import finish
from server.settings import Settings


class History:
    """Writes experiments and runs into a database through the product's own services."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.sequence = 10_000
        self.database: Database = open_database(settings)
        now = datetime.now(UTC)
        with self.database.write() as session:
            self.link = accounts.first_sign_in_link(session)
            user = accounts.find_user(session, accounts.FIRST_ADMIN)
            self.principal = Principal(user_id=user.id, name=user.name, role="admin", via="session")
            for name, description in WORKLOADS.items():
                session.add(_workload(name, now, description=description))
            session.add(_workload("my-transformer", now, error=BROKEN))
            worker = Worker(
                name="gpu-rack-07.lab@worker",
                host="gpu-rack-07.lab",
                pid=4242,
                version="0.1.0",
                slots=1,
                devices=[{"kind": "cpu", "name": "AMD EPYC 9R14", "cores": 16, "abilities": ["avx512_bf16"]}],
                state="online",
                started_at=now - timedelta(hours=5),
                heartbeat_at=now + timedelta(days=30),
            )
            session.add(worker)
            session.flush()
            self.worker_id = worker.id

    def submit(self, **body: Any) -> int:
        with self.database.write() as session:
            experiment, _ = service.submit(session, self.settings, ExperimentIn.model_validate(body), self.principal)
            return experiment.id

    def work(
        self, shapes: dict[str, Shape], metric: str, num_runs: int | None = None, until: int | None = None
    ) -> None:
        """Take queued runs and write them; the last one only up to step ``until`` when that is given."""
        done = 0
        while num_runs is None or done < num_runs:
            with self.database.write() as session:
                run = claim(session, self.worker_id, ["cpu"], lease_s=30 * 86400)
            if run is None:
                return
            done += 1
            last = until is not None and done == num_runs
            self._write(run, shapes, metric, until if last else None)

    def _write(self, run: ClaimedRun, shapes: dict[str, Shape], metric: str, until: int | None) -> None:
        start = time.time() - 60
        shape = shapes[run.recipe["name"]]
        told = (
            benchmark(run, 1.62) if run.kind == "benchmark" else training(run, shape, metric, until or run.steps, start)
        )
        frames = [events.Frame(sequence=at, at=start + at * 0.1, event=event) for at, event in enumerate(told, 1)]
        if run.kind == "train" and until is None and metric == "psnr":
            extra = {"clean": (1.0, 1), "noisy": (0.0, 2), "denoised": (0.1 if shape.dead else 0.9, 3 + run.run_id)}
            frames += [
                events.Frame(
                    sequence=len(frames) + at,
                    at=start,
                    event=events.Artifact(name=name, media_type="image/png", content=picture(*made), step=run.steps),
                )
                for at, (name, made) in enumerate(extra.items(), 1)
            ]
        with self.database.write() as session:
            store_frames(session, run.run_id, run.attempt, frames)
            log = "".join(f"step {step:5d}  loss {shape.end + 1 / step:.5f}\n" for step in range(1, run.steps + 1, 5))
            store_log(session, run.run_id, run.attempt, 0, log)
            took = timedelta(seconds=run.steps * 0.03)
            begun = datetime.now(UTC) - took
            session.execute(update(Run).where(Run.id == run.run_id).values(started_at=begun))
            session.execute(update(Attempt).where(Attempt.run_id == run.run_id).values(started_at=begun))
            if until is None and run.seed == 4 and shape.nan_at:
                reason = {
                    "kind": "exception",
                    "message": "RuntimeError: the data loader met a closed file",
                    "traceback": BROKEN,
                }
                finish(session, run.run_id, run.attempt, "failed", reason, exit_code=1)
            elif until is None:
                finish(session, run.run_id, run.attempt, "completed", None, exit_code=0)

    def add_point(self, name: str, value: float) -> None:
        """One more point of the run that is still running, as its worker would store it."""
        with self.database.write() as session:
            run = session.scalars(select(Run).where(Run.state == "running").order_by(Run.id)).first()
            assert run is not None, "a run is running"
            self.sequence += 1
            points = column(name, np.array([run.step + 1]), np.array([value]), time.time())
            frame = events.Frame(sequence=self.sequence, at=time.time(), event=events.Segment(columns=[points]))
            store_frames(session, run.id, run.attempt, [frame])

    def age(self, experiment_id: int, **span: float) -> None:
        """Move an experiment into the past."""
        with self.database.write() as session:
            then = datetime.now(UTC) - timedelta(**span)
            session.execute(
                update(Experiment).where(Experiment.id == experiment_id).values(created_at=then, ended_at=then)
            )


def _workload(
    name: str, now: datetime, description: dict[str, Any] | None = None, error: str | None = None
) -> Workload:
    return Workload(
        name=name,
        source_hash=f"{abs(hash(name)):016x}" * 4,
        path=f"/srv/workloads/{name.replace('-', '_')}.py",
        description=description or {},
        error=error,
        first_seen_at=now,
        seen_at=now,
    )


def write_history(settings: Settings) -> History:
    """The whole history; the last experiments are still running and queued."""
    history = History(settings)
    fp16 = "16-mixed, no scaler"
    digits = {
        "32-true": Shape(start=2.3, end=0.06, metric_end=0.981),
        "bf16-mixed": Shape(start=2.3, end=0.061, metric_end=0.9805, speed=1400),
        "16-mixed": Shape(start=2.3, end=0.06, metric_end=0.9808, skips=(1, 2, 40), emulated=True),
    }
    spiky = {name: Shape(start=3.0, end=1.2, metric_end=1.31, spike_at=90) for name in digits}
    spiky["16-mixed"] = Shape(
        start=3.0, end=1.2, metric_end=1.36, nan_at=700, emulated=True, skips=tuple(range(500, 560))
    )
    denoiser = {
        "32-true": Shape(start=0.004, end=0.0004, metric_end=24.2),
        "bf16-mixed": Shape(start=0.004, end=0.00041, metric_end=24.17, speed=1610),
        "16-mixed": Shape(start=0.004, end=0.0004, metric_end=24.21, skips=(1,), emulated=True),
        fp16: Shape(start=0.004, end=0.004, metric_end=17.8, dead=True, emulated=True),
    }
    first = history.submit(workload="digits-cnn", name="Digits: is bf16 as good?", tags=["baseline"], seeds=5)
    history.work(digits, "accuracy")
    hostile = "<script>alert('x')</script> & \"quotes\" " + "a-very-long-name-" * 9
    second = history.submit(workload="stdlib-gpt", name=hostile[:200], seeds=5, steps=1200)
    history.work(spiky, "loss")
    third = history.submit(workload="photo-denoiser", name="Photo denoiser at a tenth of the light", seeds=5)
    history.work(denoiser, "psnr")
    judge_ended(history.database)
    for experiment, hours in ((first, 50), (second, 26), (third, 0.2)):
        history.age(experiment, hours=hours)
    history.submit(workload="digits-cnn", name="Digits with a larger step", params={"lr": 0.003}, seeds=3)
    history.work(digits, "accuracy", num_runs=6, until=120)
    history.submit(workload="stdlib-gpt", name="GPT, six layers", params={"layers": 6}, seeds=3, priority=-1)
    return history


if __name__ == "__main__":
    data_dir = Path(sys.argv[1])
    data_dir.mkdir(parents=True, exist_ok=True)
    made = write_history(Settings(data_dir=data_dir))
    made.database.dispose()
    sys.stdout.write(accounts.sign_in_url("", made.link) + "\n")
