"""From rows to evidence: the facts of one experiment as `amp_core.verdict` wants them. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from amp_core import events
from amp_core.config import Recipe
from amp_core.verdict.evidence import BenchmarkEvidence, ExperimentEvidence, Forked, Primary, RunEvidence
from server.comparisons.losses import Curve, losses_of
from server.db.tables import Event, Experiment, Run

MAX_NUMERICS_STEPS = 48  # of a long run, evenly chosen, the same steps of every run

EVENT_TYPES: dict[str, type[events.Event]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        events.Evaluated,
        events.StepSkipped,
        events.NonFinite,
        events.Numerics,
        events.ZeroGradients,
        events.EffectivePrecision,
        events.BenchmarkBlock,
        events.BenchmarkMemory,
    )
}
Kind = TypeVar("Kind", bound=events.Event)
NOTHING: Curve = ((), ())
Told = dict[type[events.Event], list[Any]]  # what a run said, by kind, in its order


def evidence_of(session: Session, experiment: Experiment) -> ExperimentEvidence:
    """Everything the runs of an experiment have reported: of each step what the newest attempt that made it said."""
    plan = experiment.plan
    recipes = [msgspec.convert(recipe, Recipe) for recipe in plan["recipes"]]
    primary = msgspec.convert(plan["primary"], Primary)
    runs = session.scalars(
        select(Run)
        .where(Run.experiment_id == experiment.id, Run.role != "analysis")
        .order_by(Run.id)
        .execution_options(populate_existing=True)
    ).all()
    told = _events_of(session, experiment.id)
    train = [run for run in runs if run.kind == "train"]
    losses = losses_of(session, [run for run in train if run.role != "control"])
    return ExperimentEvidence(
        experiment_id=experiment.id,
        workload=plan["workload"],
        primary=primary,
        baseline=next(recipe for recipe in recipes if recipe.name == plan["baseline"]),
        candidates=tuple(recipe for recipe in recipes if recipe.name != plan["baseline"]),
        seeds=tuple(plan["seeds"]),
        steps=plan["steps"],
        runs=tuple(
            _run_evidence(run, told.get(run.id, {}), primary, losses.get(run.id, NOTHING))
            for run in train
            if run.role != "control"
        ),
        control_planned=bool(plan["control"]),
        control_runs=tuple(_run_evidence(run, told.get(run.id, {}), primary) for run in train if run.role == "control"),
        gain_planned=bool(plan["measure_gain"]),
        benchmarks=tuple(_benchmark_evidence(run, told.get(run.id, {})) for run in runs if run.kind == "benchmark"),
        device=str(plan["device"]),
        submission=plan.get("submission") or {},
        wall_s=_wall_s(runs),
        fork=_forked(plan.get("fork")),
    )


def _forked(fork: dict[str, Any] | None) -> Forked | None:
    return None if not fork else Forked(run_id=fork["run"], step=fork["step"], steps=fork["steps"])


def _events_of(session: Session, experiment_id: int) -> dict[int, Told]:
    """The events a verdict needs, by run, in the order they were sent.

    An attempt that was resumed says nothing of the steps before: there what earlier attempts said stands.
    """
    replaced_after = _replaced_after(session, experiment_id)
    wanted = or_(
        Event.kind.in_([kind for kind in EVENT_TYPES if kind != "numerics"]),
        and_(Event.kind == "numerics", Event.step.in_(_sampled_steps(session, experiment_id))),
    )
    rows = session.execute(
        select(Event.run_id, Event.attempt, Event.kind, Event.step, Event.payload)
        .join(Run, and_(Run.id == Event.run_id, Event.attempt <= Run.attempt))
        .where(Run.experiment_id == experiment_id, wanted)
        .order_by(Event.run_id, Event.attempt, Event.sequence)
    )
    told: dict[int, Told] = {}
    for run_id, attempt, kind, step, payload in rows:
        last = replaced_after.get((run_id, attempt))
        if last is not None and (step is None or step > last):
            continue
        event = msgspec.convert(payload, EVENT_TYPES[kind], strict=False)  # "NaN" and "Infinity" become floats
        told.setdefault(run_id, {}).setdefault(EVENT_TYPES[kind], []).append(event)
    return told


def _replaced_after(session: Session, experiment_id: int) -> dict[tuple[int, int], int]:
    """For attempts that a later one followed: the last step of theirs that none of those made again."""
    rows = session.execute(
        select(Run.id, Event.attempt, Event.payload)
        .join(Event, and_(Run.id == Event.run_id, Event.kind == "started"))
        .where(Run.experiment_id == experiment_id, Run.attempt > 1)
    )
    last: dict[tuple[int, int], int] = {}
    for run_id, attempt, payload in rows:
        resumed = int(payload.get("resumed_step", 0))
        for earlier in range(1, attempt):
            last[run_id, earlier] = min(resumed, last.get((run_id, earlier), resumed))
    return last


def _sampled_steps(session: Session, experiment_id: int) -> list[int]:
    """The steps at which numerics are compared: all of them, or evenly chosen with the first and the last."""
    steps = session.scalars(
        select(Event.step)
        .join(Run, and_(Run.id == Event.run_id, Event.attempt <= Run.attempt))
        .where(Run.experiment_id == experiment_id, Event.kind == "numerics", Event.step.is_not(None))
        .distinct()
        .order_by(Event.step)
    ).all()
    known = [step for step in steps if step is not None]
    if len(known) <= MAX_NUMERICS_STEPS:
        return known
    last = len(known) - 1
    return sorted({known[round(index * last / (MAX_NUMERICS_STEPS - 1))] for index in range(MAX_NUMERICS_STEPS)})


def _of(told: Told, kind: type[Kind]) -> tuple[Kind, ...]:
    return tuple(told.get(kind, ()))


def _run_evidence(run: Run, told: Told, primary: Primary, losses: Curve = NOTHING) -> RunEvidence:
    evaluations = _of(told, events.Evaluated)
    skips = _of(told, events.StepSkipped)
    finished = msgspec.convert(run.result, events.Finished, strict=False) if run.result else None
    return RunEvidence(
        run_id=run.id,
        seed=run.seed,
        recipe=run.recipe_name,
        state=run.state,
        reason=run.reason,
        metric=_final_metric(primary.metric, finished, evaluations) if run.state == "completed" else None,
        num_evaluated=evaluations[-1].num_samples if evaluations else None,
        steps_run=finished.steps if finished else run.step,
        skipped_steps=finished.skipped_steps if finished else len(skips),
        samples=finished.samples if finished else 0,
        lost_samples=finished.lost_samples if finished else 0,
        evaluations=evaluations,
        skips=skips,
        non_finite=_of(told, events.NonFinite),
        numerics_samples=_of(told, events.Numerics),
        zero_gradients=_of(told, events.ZeroGradients),
        effective=_of(told, events.EffectivePrecision),
        numerics=run.numerics,
        environment=run.environment,
        duration_s=_duration_s(run),
        attempt=run.attempt,
        losses=losses,
    )


def _final_metric(name: str, finished: events.Finished | None, evaluations: Sequence[events.Evaluated]) -> float | None:
    """The primary metric at the last evaluation: what the run finished with, else its event marked final."""
    if finished is not None and name in finished.metrics:
        return finished.metrics[name]
    final = [evaluation for evaluation in evaluations if evaluation.final]
    return final[-1].metrics.get(name) if final else None


def _benchmark_evidence(run: Run, told: Told) -> BenchmarkEvidence:
    return BenchmarkEvidence(
        recipe=run.recipe_name,
        state=run.state,
        reason=run.reason,
        numerics=run.numerics,
        blocks=_of(told, events.BenchmarkBlock),
        memory=_of(told, events.BenchmarkMemory),
        duration_s=_duration_s(run),
    )


def _duration_s(run: Run) -> float | None:
    if run.started_at is None or run.ended_at is None:
        return None
    return max(0.0, (run.ended_at - run.started_at).total_seconds())


def _wall_s(runs: Sequence[Run]) -> float | None:
    starts: list[datetime] = [run.started_at for run in runs if run.started_at is not None]
    ends: list[datetime] = [run.ended_at for run in runs if run.ended_at is not None]
    if not starts or not ends:
        return None
    wall = (max(ends) - min(starts)).total_seconds()
    return wall if wall > 0 else None
