"""A short comparison of speed: two recipes by turns in one process. A benchmark run measures properly."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from amp_core.analysis.start import By, Start, reference_recipe, step_at, trial_recipe
from amp_core.config import RunConfig
from amp_core.precision import precision_for
from amp_core.setup import device_named
from amp_core.step import TrainStep
from amp_core.workload import Workload, num_samples_of

BLOCKS = 4  # of each arm, in the order A B, B A, …
BLOCK_S = 0.25
WARMUP_STEPS = 3


def short_speed(config: RunConfig, workload: Workload, start: Start, kept: tuple[str, ...], by: By) -> dict[str, Any]:
    """Samples per second of FP32, and of the recipe with those modules kept; not where the recipe is emulated."""
    recipe = trial_recipe(config.recipe, kept, by)
    if precision_for(recipe, device_named(config.device)).numerics == "emulated":
        return {"measured": False, "sentence": "Speed is not measured: the arithmetic is emulated on this device."}
    arms = [step_at(config, workload, start, one) for one in (reference_recipe(config.recipe), recipe)]
    steps = [_warm_up(arm, start) for arm in arms]
    rates: list[list[float]] = [[], []]
    for number in range(BLOCKS):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            rates[which].append(_block(arms[which], start, steps[which]))
    slow, fast = (statistics.median(rate) for rate in rates)
    ratio = fast / slow
    return {
        "measured": True,
        "fp32_samples_per_s": slow,
        "samples_per_s": fast,
        "ratio": ratio,
        "sentence": f"With the set in place a step runs at {ratio:.2f}× the speed of FP32, by {BLOCKS} short blocks of "
        "each by turns; a benchmark run measures properly.",
    }


def _warm_up(arm: TrainStep, start: Start) -> int:
    """Steps that make a block of the wanted length."""
    _block(arm, start, WARMUP_STEPS)
    began = time.perf_counter()
    _block(arm, start, 1)
    return max(1, round(BLOCK_S / max(time.perf_counter() - began, 1e-6)))


def _block(arm: TrainStep, start: Start, steps: int) -> float:
    """Samples per second over some steps."""
    samples = 0
    with arm.precision.applied(arm.model):
        _synchronise(arm)
        began = time.perf_counter()
        for number in range(steps):
            taken = start.steps[number % len(start.steps)]
            arm.backward(taken)
            arm.update()
            arm.clear()
            samples += sum(num_samples_of(batch) for batch in taken)
        _synchronise(arm)
        return samples / (time.perf_counter() - began)


def _synchronise(arm: TrainStep) -> None:
    if arm.precision.device.type == "cuda":
        torch.cuda.synchronize(arm.precision.device)
