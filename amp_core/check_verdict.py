"""The verdict of a check: a few seeds under the baseline and each recipe in this process, judged as the server does."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from amp_core.config import Recipe, RunConfig, WorkloadRef
from amp_core.events import (
    EffectivePrecision,
    Evaluated,
    Event,
    Finished,
    NonFinite,
    Numerics,
    Started,
    StepSkipped,
    ZeroGradients,
)
from amp_core.failure import failure_of
from amp_core.loader import load
from amp_core.training import train
from amp_core.verdict import judge
from amp_core.verdict.comparison import Comparison
from amp_core.verdict.evidence import ExperimentEvidence, Primary, RunEvidence
from amp_core.workload import Metric, Workload

BASELINE = Recipe(name="32-true", precision="32-true")
CONTROL_PERTURBATION = 1e-6
Kind = TypeVar("Kind", bound=Event)


def verdict_of(
    workload: Workload, path: Path, recipes: Sequence[Recipe], seeds: Sequence[int], steps: int
) -> Comparison:
    """Train every recipe, the FP32 baseline and its A/A control on every seed, and judge them.

    The numbers and the rules are those of an experiment of the same size; speed and memory are not measured.
    """
    ref = WorkloadRef(name=workload.name, path=str(path))
    candidates = [recipe for recipe in recipes if recipe.name != BASELINE.name]
    plan = [(recipe, seed, 0.0) for recipe in (BASELINE, *candidates) for seed in seeds]
    plan += [(BASELINE, seed, CONTROL_PERTURBATION) for seed in seeds]
    runs = [
        _run(RunConfig(
            run_id=number, attempt=1, workload=ref, recipe=recipe, seed=seed, steps=steps,
            eval_every=max(1, steps // 5), init_perturbation=perturbation, diagnose_s=0.0,
        ), workload.primary)
        for number, (recipe, seed, perturbation) in enumerate(plan, start=1)
    ]  # fmt: skip
    num_control = len(seeds)
    return judge(
        ExperimentEvidence(
            experiment_id=0,
            workload=workload.name,
            primary=_primary(workload.primary),
            baseline=BASELINE,
            candidates=tuple(candidates),
            seeds=tuple(seeds),
            steps=steps,
            runs=tuple(runs[:-num_control]),
            control_planned=True,
            control_runs=tuple(runs[-num_control:]),
            submission={"workload": workload.name},
        )
    )


def _primary(metric: Metric) -> Primary:
    return Primary(
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        margin=metric.margin,
        relative=metric.relative,
        unit=metric.unit,
        resolution=metric.resolution,
    )


def _run(config: RunConfig, primary: Metric) -> RunEvidence:
    """One training as evidence; an error of the workload is its reason and ends it alone."""
    seen: list[Event] = []
    reason: dict[str, Any] | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for event in _events(config):
                seen.append(event)
    except Exception as error:  # noqa: BLE001 - whatever ends a run is its reason
        failed = failure_of(error)
        reason = {"kind": failed.kind, "message": failed.message}
    finished = next(iter(_of(seen, Finished)), None)
    started = next(iter(_of(seen, Started)), None)
    evaluations = _of(seen, Evaluated)
    return RunEvidence(
        run_id=config.run_id,
        seed=config.seed,
        recipe=config.recipe.name,
        state="completed" if finished is not None else "failed",
        reason=reason,
        metric=finished.metrics.get(primary.name) if finished is not None else None,
        num_evaluated=evaluations[-1].num_samples if evaluations else None,
        steps_run=finished.steps if finished is not None else 0,
        skipped_steps=finished.skipped_steps if finished is not None else len(_of(seen, StepSkipped)),
        samples=finished.samples if finished is not None else 0,
        lost_samples=finished.lost_samples if finished is not None else 0,
        evaluations=evaluations,
        skips=_of(seen, StepSkipped),
        non_finite=_of(seen, NonFinite),
        numerics_samples=_of(seen, Numerics),
        zero_gradients=_of(seen, ZeroGradients),
        effective=_of(seen, EffectivePrecision),
        numerics=started.numerics if started is not None else None,
        environment=started.environment if started is not None else None,
        duration_s=finished.train_s if finished is not None else None,
    )


def _events(config: RunConfig) -> Iterator[Event]:
    return train(config, load(config.workload))


def _of(seen: Sequence[Event], kind: type[Kind]) -> tuple[Kind, ...]:
    return tuple(event for event in seen if isinstance(event, kind))
