"""Skipped steps: which are benign, which never end, and how many samples they cost."""

from __future__ import annotations

from collections.abc import Sequence

from amp_core.config import Recipe
from amp_core.verdict.evidence import RunEvidence

SETTLING_STEPS = 20  # a dynamic scale starts high on purpose and comes down in the first steps
SETTLING_SKIPS = 5  # that many skips there are benign: 65,536 comes down to 2,048
ENDLESS_SKIPS = 10  # ten overflows in a row lower a dynamic scale a thousandfold, and it still overflows
LOST_SAMPLES_LIMIT = 0.01


def num_trailing(run: RunEvidence) -> int:
    """How many of the last steps were skipped without a taken step between."""
    skipped = {skip.step for skip in run.skips}
    step, streak = run.steps_run, 0
    while step in skipped:
        step, streak = step - 1, streak + 1
    return streak


def is_endless(run: RunEvidence) -> bool:
    """Skips without end: ten or more that reach the last step, or a quarter of all steps of the second half."""
    if num_trailing(run) >= ENDLESS_SKIPS:
        return True
    half = run.steps_run // 2
    late = sum(skip.step > half for skip in run.skips)
    return late >= ENDLESS_SKIPS and late * 4 >= run.steps_run - half


def goes_on_falling(run: RunEvidence) -> bool:
    """A dynamic scale that is below 1 and was still being lowered in the second half of the run."""
    if len(run.skips) < ENDLESS_SKIPS:
        return False
    last = run.skips[-1]
    return last.scale_after < 1.0 and last.scale_after < last.scale_before and last.step > run.steps_run // 2


def num_settling(recipe: Recipe, run: RunEvidence) -> int:
    """Skips that only brought a dynamic scale down at the start, if there were few: benign."""
    if recipe.scaler is None or recipe.scaler.kind != "dynamic":
        return 0
    early = sum(skip.step <= SETTLING_STEPS for skip in run.skips)
    return early if early <= SETTLING_SKIPS else 0


def lost_fraction(runs: Sequence[RunEvidence]) -> float:
    """Share of samples lost to skipped steps, over all runs of a recipe."""
    samples = sum(run.samples for run in runs)
    return sum(run.lost_samples for run in runs) / samples if samples else 0.0


def lost_fraction_after_settling(recipe: Recipe, runs: Sequence[RunEvidence]) -> float:
    """The same without the benign skips while the scale settles."""
    samples = sum(run.samples for run in runs)
    lost = 0.0
    for run in runs:
        settling = min(num_settling(recipe, run), run.skipped_steps)
        lost += run.lost_samples * (1.0 - settling / run.skipped_steps) if run.skipped_steps else run.lost_samples
    return lost / samples if samples else 0.0
