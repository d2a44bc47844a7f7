"""Evidence made to order for the tests of the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from amp_core.config import Recipe, parse_recipe
from amp_core.events import (
    BenchmarkBlock,
    BenchmarkMemory,
    ModuleStatistics,
    Numerics,
    StepSkipped,
    ZeroGradients,
)
from amp_core.verdict import Comparison, ExperimentEvidence, Primary, RunEvidence, judge
from amp_core.verdict.comparison import RecipeComparison
from amp_core.verdict.evidence import BenchmarkEvidence

PSNR = Primary(metric="psnr", higher_is_better=True, margin=0.25, unit="dB")
ACCURACY = Primary(metric="accuracy", higher_is_better=True, margin=0.005)
LOSS = Primary(metric="loss", higher_is_better=False, margin=0.01, relative=True)

FP32 = parse_recipe("fp32")
BF16 = parse_recipe("bf16")
FP16 = parse_recipe("fp16")
UNSCALED = parse_recipe({"precision": "16-mixed", "scaler": "none"})
STATIC = parse_recipe({"precision": "16-mixed", "scaler": "static"})

ENVIRONMENT = {
    "torch": "2.13.0",
    "num_threads": 2,
    "device": {"type": "cpu", "name": "a CPU"},
    "flags": {"tf32": False},
}


def run(recipe: Recipe, seed: int, metric: float | None, **given: Any) -> RunEvidence:
    fields: dict[str, Any] = {
        "run_id": 1000 * (1 + sum(map(ord, recipe.name)) % 97) + seed,
        "seed": seed,
        "recipe": recipe.name,
        "state": "completed",
        "metric": metric,
        "num_evaluated": 360,
        "steps_run": 150,
        "samples": 15_000,
        "numerics": "emulated" if recipe.precision == "16-mixed" else "native",
        "environment": ENVIRONMENT,
        "duration_s": 6.0,
    }
    return RunEvidence(**{**fields, **given})


def skips(steps: Sequence[int], scale: float = 65536.0) -> tuple[StepSkipped, ...]:
    events = []
    for step in steps:
        events.append(StepSkipped(step=step, scale_before=scale, scale_after=scale / 2))
        scale /= 2
    return tuple(events)


def numerics(zero: Mapping[str, float], steps: Sequence[int] = (1, 50, 100, 150)) -> tuple[Numerics, ...]:
    """Samples in which every module has the same zero fraction at each step."""
    modules = [
        ModuleStatistics(module=name, num_elements=512 * 512, zero_fraction=z, underflow_fraction=z, max_abs=1e-6)
        for name, z in zero.items()
    ]
    return tuple(Numerics(step=step, loss_scale=1.0, modules=modules) for step in steps)


def zero_gradients(zero: Mapping[str, float], probe: Mapping[str, float], step: int = 1) -> ZeroGradients:
    return ZeroGradients(step=step, zero_fraction=dict(zero), probe_scale=65536.0, probe=dict(probe))


def blocks(baseline: float, candidate: float, *, num: int = 12, mode: str = "compute") -> tuple[BenchmarkBlock, ...]:
    """ABBA blocks at given seconds per block, with a few percent of deterministic wobble."""
    made = []
    for index in range(num):
        for arm, seconds in (("baseline", baseline), ("candidate", candidate)):
            wobble = 1.0 + 0.02 * ((index * 7 + len(arm)) % 5 - 2)
            made.append(
                BenchmarkBlock(block=index, mode=mode, arm=arm, steps=10, samples=1000, seconds=seconds * wobble)
            )
    return tuple(made)


def memory(baseline: int, candidate: int) -> tuple[BenchmarkMemory, ...]:
    return tuple(
        BenchmarkMemory(arm=arm, process_growth_bytes=size * 2, device_peak_bytes=0, saved_for_backward_bytes=size)
        for arm, size in (("baseline", baseline), ("candidate", candidate))
    )


def benchmark(recipe: Recipe, baseline: float, candidate: float, **given: Any) -> BenchmarkEvidence:
    fields: dict[str, Any] = {
        "recipe": recipe.name,
        "state": "completed",
        "numerics": "native",
        "blocks": blocks(baseline, candidate) + blocks(baseline, candidate, mode="loader"),
        "memory": memory(1_000_000, 680_000),
        "duration_s": 15.0,
    }
    return BenchmarkEvidence(**{**fields, **given})


def evidence(
    baseline: Sequence[float | None],
    candidates: Mapping[Recipe, Sequence[float | None]],
    *,
    primary: Primary = PSNR,
    control: Sequence[float] | None = None,
    **given: Any,
) -> ExperimentEvidence:
    """An ended experiment whose runs have the given values of the primary metric, by seed from 0."""
    runs = [run(FP32, seed, value) for seed, value in enumerate(baseline)]
    for recipe, values in candidates.items():
        runs += [run(recipe, seed, value) for seed, value in enumerate(values)]
    fields: dict[str, Any] = {
        "experiment_id": 7,
        "workload": "photo-denoiser",
        "primary": primary,
        "baseline": FP32,
        "candidates": tuple(candidates),
        "seeds": tuple(range(len(baseline))),
        "steps": 150,
        "runs": tuple(runs),
        "control_planned": control is not None,
        "control_runs": tuple(run(FP32, seed, value) for seed, value in enumerate(control or ())),
        "submission": {"workload": "photo-denoiser", "name": "demo", "seeds": len(baseline)},
        "wall_s": 200.0,
    }
    return ExperimentEvidence(**{**fields, **given})


def change(given: ExperimentEvidence, recipe: Recipe, seed: int | None = None, **changes: Any) -> ExperimentEvidence:
    """The evidence with fields changed in one run, or in all runs of a recipe."""
    runs = tuple(
        msgspec.structs.replace(one, **changes) if one.recipe == recipe.name and seed in (None, one.seed) else one
        for one in given.runs
    )
    return msgspec.structs.replace(given, runs=runs)


def answer(given: ExperimentEvidence, recipe: Recipe = BF16) -> RecipeComparison:
    return of(judge(given), recipe)


def of(comparison: Comparison, recipe: Recipe) -> RecipeComparison:
    return next(one for one in comparison.recipes if one.recipe == recipe.name)


def codes(recipe: RecipeComparison) -> set[str]:
    return {reason.code for reason in recipe.reasons}
