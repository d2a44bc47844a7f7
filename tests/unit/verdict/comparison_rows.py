"""An experiment in the store whose runs are told what to report, by the same functions that the worker uses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from amp_core import events
from amp_core.config import Recipe, parse_recipe
from server.db.engine import Database
from server.db.tables import Experiment, Project, Run, User, Workload
from server.experiments.plan import Plan, PrimaryMetric, expand, recipe_json
from server.metrics.write import store_frames
from server.queue.finish import settle_experiment

START = datetime(2026, 1, 1, tzinfo=UTC)
UNSCALED = parse_recipe({"precision": "16-mixed", "scaler": "none"})
RECIPES = (parse_recipe("fp32"), parse_recipe("bf16"), UNSCALED)
ENVIRONMENT = {"torch": "2.13.0", "num_threads": 2, "device": {"type": "cpu", "name": "a CPU"}}


def make_plan(recipes: Sequence[Recipe] = RECIPES, num_seeds: int = 5, **given: Any) -> Plan:
    fields: dict[str, Any] = {
        "workload": "photo-denoiser",
        "source_hash": "0" * 64,
        "path": "photo_denoiser.py",
        "params": {},
        "recipes": tuple(recipes),
        "baseline": recipes[0].name,
        "seeds": tuple(range(num_seeds)),
        "steps": 150,
        "eval_every": 50,
        "primary": PrimaryMetric(metric="psnr", higher_is_better=True, margin=0.25, unit="dB"),
        "control": True,
        "measure_gain": True,
        "device": "cpu",
        "submission": {"workload": "photo-denoiser", "recipes": ["fp32", "bf16"], "seeds": num_seeds},
    }
    return Plan(**{**fields, **given})


def submit(database: Database, plan: Plan, name: str = "Demo") -> int:
    """The experiment's row and its runs, all running their first attempt."""
    with database.write() as session:
        owner = session.scalar(select(User)) or User(name="ann", role="admin", created_at=START)
        project = session.scalar(select(Project)) or Project(name="default", created_at=START)
        workload = session.scalar(select(Workload)) or Workload(
            name=plan.workload, source_hash="0" * 64, path="w.py", description={}, first_seen_at=START, seen_at=START
        )
        session.add_all([owner, project, workload])
        session.flush()
        experiment = Experiment(
            project_id=project.id, workload_id=workload.id, owner_id=owner.id, name=name, state="running",
            plan=plan.to_json(), created_at=START,
        )  # fmt: skip
        session.add(experiment)
        session.flush()
        for planned in expand(plan):
            session.add(
                Run(
                    experiment_id=experiment.id, kind=planned.kind, role=planned.role, recipe_name=planned.recipe.name,
                    recipe=recipe_json(planned.recipe), seed=planned.seed, steps=plan.steps, config={}, state="running",
                    attempt=1, created_at=START, started_at=START,
                )
            )  # fmt: skip
        return experiment.id


def runs_of(database: Database, experiment_id: int) -> list[Run]:
    with database.read() as session:
        return list(session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)))


def report(database: Database, run: Run, said: Sequence[events.AnyEvent], sequence: int = 1) -> None:
    """Store a run's events as frames of its current attempt."""
    frames = [
        events.Frame(sequence=sequence + index, at=1.7e9 + index, event=event) for index, event in enumerate(said)
    ]
    with database.write() as session:
        store_frames(session, run.id, run.attempt, frames)


def end(database: Database, run: Run, state: str = "completed", reason: dict[str, Any] | None = None) -> None:
    with database.write() as session:
        row = session.get_one(Run, run.id)
        row.state, row.reason, row.ended_at = state, reason, START + timedelta(seconds=6)
        session.flush()
        settle_experiment(session, row.experiment_id, START + timedelta(seconds=300))


def training(psnr: float, *more: events.AnyEvent, emulated: bool = False, **finished: int) -> list[events.AnyEvent]:
    """What a training run that ends well says."""
    counts = {"skipped_steps": 0, "lost_samples": 0} | finished
    return [
        events.Started(
            numerics="emulated" if emulated else "native", environment=ENVIRONMENT, num_parameters=3, setup_s=0.1
        ),
        *more,
        events.Evaluated(step=150, metrics={"psnr": psnr, "loss": 0.1}, num_samples=4096, final=True),
        events.Finished(
            metrics={"psnr": psnr, "loss": 0.1}, steps=150, samples=153_600, train_s=5.0, warmup_s=0.2, **counts
        ),
    ]


def sample(zero_fraction: float, step: int) -> events.Numerics:
    module = events.ModuleStatistics(
        module="net.2", num_elements=262_656, zero_fraction=zero_fraction, underflow_fraction=0.0, max_abs=float("nan")
    )
    return events.Numerics(step=step, loss_scale=1.0, modules=[module])


def speak_for(run: Run) -> list[events.AnyEvent]:
    """A plausible demo: bf16 as good and faster, fp16 without a scaler losing its gradients."""
    base = 24.0 + 0.1 * run.seed
    if run.kind == "benchmark":
        blocks: list[events.AnyEvent] = []
        for block in range(12):
            for arm, seconds in (("baseline", 0.25), ("candidate", 0.14)):
                wobble = 1 + 0.01 * (block % 3)
                blocks.append(
                    events.BenchmarkBlock(
                        block=block, mode="compute", arm=arm, steps=10, samples=10_240, seconds=seconds * wobble
                    )
                )
        for arm, size in (("baseline", 1000), ("candidate", 680)):
            blocks.append(
                events.BenchmarkMemory(
                    arm=arm, process_growth_bytes=size, device_peak_bytes=0, saved_for_backward_bytes=size
                )
            )
        return [
            events.Started(numerics="native", environment=ENVIRONMENT, num_parameters=3, setup_s=0.1),
            *blocks,
            events.Finished(metrics={}, steps=0, skipped_steps=0, samples=0, lost_samples=0, train_s=5.0, warmup_s=0.2),
        ]
    if run.role == "control":
        return training(base + 0.01 * (-1) ** run.seed)
    if run.recipe_name == "bf16-mixed":
        return training(base - 0.02 - 0.01 * (run.seed % 2))
    if run.role == "candidate":
        probe = events.ZeroGradients(step=1, zero_fraction={"net.2": 0.995}, probe_scale=65536.0, probe={"net.2": 0.01})
        return training(17.8, probe, sample(0.995, 1), sample(0.997, 150), emulated=True)
    return training(base, sample(0.0, 1), sample(0.001, 150))


def play(database: Database, experiment_id: int) -> None:
    """Let every run say its part and end."""
    for run in runs_of(database, experiment_id):
        report(database, run, speak_for(run))
        end(database, run)
