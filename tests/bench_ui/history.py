"""The history that other dashboards were measured on: 12 runs of three precisions, six metrics of 1,000 steps.

One run has a one-step spike, one is NaN from step 700, one has +inf at step 500. The experiment's name is hostile and
200 characters long. Two further runs measure speed and memory, as every experiment here has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from seeded import team
from seeded.courses import Course, Place, benchmark, column, losses, training
from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core import events
from server.access import Principal
from server.comparisons.service import judge_ended
from server.db.tables import Attempt, Experiment, Run, User
from server.experiments import service
from server.experiments.schemas import ExperimentIn
from server.metrics.write import store_frames
from server.queue.finish import finish
from tests.bench_store.ours import Site

NUM_SEEDS, NUM_STEPS = 4, 1000
SPIKE_AT, INF_AT, NAN_AT = 437, 500, 700
SPEED = 1.6
STEP_S = 0.006
NAME = ("<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script> & " + "a-very-long-name-" * 12)[:200]
SOUND = Course(loss=(2.3, 0.06), metric=0.981, spread=0.0004)
FASTER = replace(SOUND, samples_per_s=1430.0, memory=4.1e9)
SPIKED = replace(FASTER, spikes={SPIKE_AT: 60.0})
COURSES = {
    "32-true": [SOUND] * NUM_SEEDS,
    "bf16-mixed": [FASTER, SPIKED, FASTER, FASTER],
    "16-mixed": [FASTER, FASTER, replace(FASTER, inf_at=INF_AT), replace(FASTER, nan_at=NAN_AT)],
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """Where the history is, and the loss of the spike as it was stored."""

    experiment_id: int
    spike: float


def write_history(at: Site, user_name: str) -> Written:
    """Fill the empty site: one ended and judged experiment of ``user_name``."""
    now = datetime.now(UTC) - timedelta(hours=1)
    with at.database.write() as session:
        team.add_workloads(session, now)
        user = session.scalars(select(User).where(User.name == user_name)).one()
        principal = Principal(user_id=user.id, name=user.name, role="admin", via="session")
        body = ExperimentIn.model_validate(
            {"workload": "digits-cnn", "name": NAME, "seeds": NUM_SEEDS, "steps": NUM_STEPS, "control": False,
             "device": "cuda", "recipes": list(COURSES)}
        )  # fmt: skip
        experiment, _ = service.submit(session, at.settings, body, principal)
        experiment.state = "running"
        runs = session.scalars(select(Run).where(Run.experiment_id == experiment.id).order_by(Run.id)).all()
        for run in runs:
            _write(session, run, experiment, now)
        experiment_id = experiment.id
        (spiked,) = (run for run in runs if (run.kind, run.recipe_name, run.seed) == ("train", "bf16-mixed", 1))
        spike = float(losses(SPIKED, NUM_STEPS, _generator(spiked))[SPIKE_AT - 1])
    judge_ended(at.database)
    return Written(experiment_id=experiment_id, spike=spike)


def _generator(run: Run) -> np.random.Generator:
    """As `seeded.courses.training` seeds its own."""
    return np.random.default_rng([run.seed, sum(map(ord, run.recipe_name + run.role)), run.steps])


def _write(session: Session, run: Run, experiment: Experiment, at: datetime) -> None:
    run.state, run.attempt, run.started_at = "running", 1, at
    run.lease_expires_at = at + timedelta(days=30)
    session.add(Attempt(run_id=run.id, number=1, worker_name="bench", started_at=at))
    session.flush()
    primary = experiment.plan["primary"]
    place = Place(
        environment=team.environment("a100", 0), emulated=False, started_at=at.timestamp(), step_s=STEP_S,
        metric=primary["metric"], lower_is_better=not primary["higher_is_better"],
    )  # fmt: skip
    if run.kind == "benchmark":
        frames = benchmark(run, SPEED, place)
    else:
        frames = training(run, COURSES[run.recipe_name][run.seed], place, NUM_STEPS)
        frames.append(_sixth(len(frames) + 1, place))
    store_frames(session, run.id, 1, frames)
    ended_at = at + timedelta(seconds=NUM_STEPS * STEP_S)
    finish(session, run.id, 1, "completed", None, exit_code=0, now=ended_at)


def _sixth(sequence: int, place: Place) -> events.Frame:
    """A learning rate, which makes six series of every step with the five of `seeded.courses`."""
    steps = np.arange(1, NUM_STEPS + 1)
    rate = 1e-3 * 0.5 * (1 + np.cos(np.pi * steps / NUM_STEPS))
    segment = events.Segment(columns=[column("train/learning_rate", steps, rate, place)])
    return events.Frame(sequence=sequence, at=place.started_at, event=segment)
