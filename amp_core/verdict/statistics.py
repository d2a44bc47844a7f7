"""The statistics of a verdict, on arrays whose last axis is pairs, so that a simulation runs the very same code.

Sources: paired t interval and test (Student 1908); non-inferiority and the two one-sided tests (Schuirmann 1987);
step-down multiple tests (Holm 1979); power by the noncentral t distribution; percentile bootstrap (Efron 1979).
SciPy is imported when a figure is asked for, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05  # one-sided; the two-sided interval covers 1 - 2 * ALPHA = 90 %
POWER = 0.8
MIN_PAIRS = 3
MAX_SEEDS = 150  # three runs a seed stay below the server's default limit of 500 runs

Floats = NDArray[np.float64]


class PairedInterval(msgspec.Struct, frozen=True):
    """Mean, standard error after the floor, and the 90 % interval; arrays of the batch shape."""

    mean: Floats
    standard_error: Floats
    lower: Floats
    upper: Floats
    floored: Any


def load_scipy() -> None:
    """Import SciPy now, where a wait of half a second disturbs nobody."""
    import scipy.special  # noqa: F401 - for its effect on sys.modules


def t_quantile(probability: float, degrees_of_freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))


def paired_interval(harms: Floats, floor: float = 0.0) -> PairedInterval:
    """Two-sided 90 % t interval of the mean of ``harms`` `(..., N)`, its half-width never below ``floor``.

    The floor is the metric's resolution: N equal differences do occur, and prove less than a width of zero says. It
    enters as a smallest standard error, so that the interval and every test agree.
    """
    count = harms.shape[-1]
    assert count >= 2, "an interval needs two pairs"
    quantile = t_quantile(1.0 - ALPHA, count - 1)
    mean = harms.mean(axis=-1)
    raw = harms.std(axis=-1, ddof=1) / np.sqrt(count)
    error = np.maximum(raw, floor / quantile)
    return PairedInterval(mean, error, mean - quantile * error, mean + quantile * error, raw * quantile < floor)


def noninferiority_p(interval: PairedInterval, margin: float, count: int) -> Floats:
    """One-sided p of "the mean harm is at least the margin"; below 0.05 exactly when the interval's end is below."""
    from scipy.special import stdtr

    distance = np.asarray(margin - interval.mean, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(
            interval.standard_error > 0, distance / interval.standard_error, np.inf * np.sign(distance)
        )
    return np.asarray(stdtr(count - 1, -np.nan_to_num(statistic, nan=0.0)), dtype=np.float64)


def is_noninferior(interval: PairedInterval, margin: float) -> Any:
    """Whether the mean harm is below the margin at one-sided 5 %."""
    return interval.upper < margin


def is_equivalent(interval: PairedInterval, margin: float) -> Any:
    """Whether the mean difference lies within ±margin by two one-sided tests at 5 % each."""
    return (interval.upper < margin) & (interval.lower > -margin)


def holm_thresholds(p_values: Sequence[float], alpha: float = ALPHA) -> list[tuple[float, bool]]:
    """Holm's threshold of each test and whether it passes; a test after a failed one fails."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    answer: list[tuple[float, bool]] = [(alpha, False)] * len(p_values)
    going = True
    for rank, index in enumerate(order):
        threshold = alpha / (len(p_values) - rank)
        going = going and p_values[index] < threshold
        answer[index] = (threshold, going)
    return answer


def noninferiority_power(count: int, distance: float, sd: float, alpha: float = ALPHA) -> float:
    """Chance that ``count`` pairs show a mean harm below the margin when the truth lies ``distance`` below it."""
    from scipy.special import nctdtr

    if count < 2 or distance <= 0.0:
        return 0.0
    if sd <= 0.0:
        return 1.0
    centre = distance / sd * float(np.sqrt(count))
    if centre > 30.0:  # the noncentral t is all above any quantile used here
        return 1.0
    return float(1.0 - nctdtr(count - 1, centre, t_quantile(1.0 - alpha, count - 1)))


def pairs_needed(distance: float, sd: float, alpha: float = ALPHA, power: float = POWER) -> int | None:
    """Fewest pairs (at least 3) that reach ``power``; None when `MAX_SEEDS` do not."""
    for count in range(MIN_PAIRS, MAX_SEEDS + 1):
        if noninferiority_power(count, distance, sd, alpha) >= power:
            return count
    return None


def bootstrap_ratio(
    baseline: Floats, candidate: Floats, *, seed: int = 0, draws: int = 4000, coverage: float = 0.95
) -> tuple[float, float, float]:
    """Median of ``candidate`` over median of ``baseline``, with a percentile bootstrap interval over blocks.

    Args:
        baseline: one throughput per block, `(N,)`.
        candidate: the same of the other arm, `(M,)`.
        seed: of the resampling; the same blocks give the same interval.
    """
    ratio = float(np.median(candidate) / np.median(baseline))
    return ratio, *_around(ratio, _drawn_ratios(baseline, candidate, np.random.default_rng(seed), draws), coverage)


def bootstrap_ratio_of_ratios(
    first: tuple[Floats, Floats],
    second: tuple[Floats, Floats],
    *,
    seed: int = 0,
    draws: int = 4000,
    coverage: float = 0.95,
) -> tuple[float, float, float]:
    """`bootstrap_ratio` of the first (baseline, candidate) over that of the second, each measured by itself."""
    generator = np.random.default_rng(seed)
    ratios = _drawn_ratios(*first, generator, draws) / _drawn_ratios(*second, generator, draws)
    ratio = float(np.median(first[1]) / np.median(first[0]) * np.median(second[0]) / np.median(second[1]))
    return ratio, *_around(ratio, ratios, coverage)


def _drawn_ratios(baseline: Floats, candidate: Floats, generator: np.random.Generator, draws: int) -> Floats:
    picks_b = generator.integers(0, baseline.size, size=(draws, baseline.size))
    picks_c = generator.integers(0, candidate.size, size=(draws, candidate.size))
    ratios: Floats = np.median(candidate[picks_c], axis=1) / np.median(baseline[picks_b], axis=1)
    return ratios


def _around(ratio: float, ratios: Floats, coverage: float) -> tuple[float, float]:
    tail = (1.0 - coverage) / 2.0
    low, high = np.quantile(ratios, [tail, 1.0 - tail])
    return float(min(low, ratio)), float(max(high, ratio))
