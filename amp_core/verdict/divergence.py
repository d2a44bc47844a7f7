"""Divergence while running: from which step a run's loss leaves what the baseline's seeds do among themselves.

The loss is smoothed to the median of each fortieth of the planned steps, on a logarithmic scale where all of it is
positive. A run's distance is that to the baseline's mean, by the sample standard deviation of its seeds. The limit is
simultaneous over all fortieths (Bonferroni): the prediction interval of one further curve (t with n - 1 degrees of
freedom, times the root of 1 + 1/n), one-sided 5 % altogether. A divergence has begun where the distance exceeds the
limit and stays there for at least four fortieths in a row, or up to the newest point. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from amp_core.verdict.comparison import Divergence
from amp_core.verdict.evidence import ExperimentEvidence, RunEvidence
from amp_core.verdict.statistics import ALPHA, Floats, t_quantile

NUM_BINS = 40
LASTS = 4  # bins in a row
MIN_SEEDS = 3
LEAST_SD = 1e-3  # of the logarithm, or of the baseline's size: closer than that the seeds agree by chance


def smoothed(steps: Sequence[int], values: Sequence[float], total: int) -> Floats:
    """The median of each fortieth of ``total`` steps, `(NUM_BINS,)`; NaN where there is no point.

    A fortieth with a value that is not finite is infinite.
    """
    result = np.full(NUM_BINS, np.nan)
    at = np.asarray(steps, dtype=np.int64)
    found = np.asarray(values, dtype=np.float64)
    bins = np.clip((at - 1) * NUM_BINS // max(total, 1), 0, NUM_BINS - 1)
    order = np.lexsort((found, bins))  # by value within each fortieth; NaN last
    found, bins = found[order], bins[order]
    places, starts, counts = np.unique(bins, return_index=True, return_counts=True)
    if not len(places):
        return result
    low, high = found[starts + (counts - 1) // 2], found[starts + counts // 2]
    finite = np.logical_and.reduceat(np.isfinite(found), starts)
    with np.errstate(invalid="ignore", over="ignore"):
        result[places] = np.where(finite, np.where(low == high, low, (low + high) / 2), np.inf)
    return result


def onset_bin(curve: Floats, baseline: Floats) -> int | None:
    """The bin where ``curve`` `(NUM_BINS,)` parts from ``baseline`` `(seeds, NUM_BINS)` for good; both smoothed."""
    seeds = baseline[np.isfinite(baseline).any(axis=1)]
    if len(seeds) < MIN_SEEDS:
        return None
    positive = (seeds > 0) | np.isnan(seeds)
    if positive.all() and not (curve <= 0).any():
        with np.errstate(invalid="ignore"):
            curve, seeds = np.log(curve), np.log(seeds)
        least = LEAST_SD
    else:
        least = LEAST_SD * float(np.nanmax(np.abs(seeds[np.isfinite(seeds)])))
    known = np.isfinite(seeds).all(axis=0) & ~np.isnan(curve)
    count = len(seeds)
    beyond = np.zeros(len(curve), dtype=bool)
    spread = np.maximum(seeds[:, known].std(axis=0, ddof=1), least)
    limit = t_quantile(1.0 - ALPHA / NUM_BINS, count - 1) * math.sqrt(1.0 + 1.0 / count)
    beyond[known] = curve[known] - seeds[:, known].mean(axis=0) > limit * spread
    return _first_lasting(beyond[known], np.flatnonzero(known))


def _first_lasting(beyond: NDArray[np.bool_], places: NDArray[np.intp]) -> int | None:
    """The first place of a run of excesses that lasts long enough or up to the end, by at least two."""
    length = 0
    for index, is_beyond in enumerate(beyond):
        length = length + 1 if is_beyond else 0
        if length >= LASTS or (length >= 2 and index == len(beyond) - 1):
            return int(places[index - length + 1])
    return None


def divergence_of(evidence: ExperimentEvidence, recipe: str) -> Divergence | None:
    """Where the runs of a recipe part from the baseline's seeds; None where this cannot be told yet."""
    baseline = _curves(evidence, evidence.runs_of(evidence.baseline.name))
    runs = _curves(evidence, evidence.runs_of(recipe))
    usable = [curve for curve in baseline.values() if np.isfinite(curve).any()]
    if len(usable) < MIN_SEEDS or not runs:
        return None
    onsets: dict[str, int | None] = {}
    for seed, curve in sorted(runs.items()):
        place = onset_bin(curve, np.stack(usable))
        onsets[str(seed)] = None if place is None else place * evidence.steps // NUM_BINS + 1
    begun = [step for step in onsets.values() if step is not None]
    step = min(begun, default=None)
    sentence = ""
    if step is not None:
        among = f"{len(begun)} of {len(onsets)} seeds" if len(onsets) > 1 else "its one seed"
        sentence = (
            f"Diverges from step {step:,} in {among}: the loss leaves the range of the baseline's seeds and stays out."
        )
    return Divergence(step=step, onsets=onsets, num_baseline_seeds=len(usable), sentence=sentence)


def _curves(evidence: ExperimentEvidence, runs: Mapping[int, RunEvidence]) -> dict[int, Floats]:
    return {seed: smoothed(*run.losses, evidence.steps) for seed, run in runs.items() if run.losses[0]}
