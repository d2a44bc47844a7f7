"""Where the level of a short series changed. Pure.

Piecewise constant least squares with a penalty for each change, solved exactly by optimal partitioning (Jackson et al.
2005, "An algorithm for optimal partitioning of data on an interval"); the noise comes from the median absolute
difference of neighbours, which a few changes do not raise. The penalty is set by simulation, see `PENALTY`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

MIN_POINTS = 6
MIN_SEGMENT = 2
MAX_POINTS = 400  # the newest ones; the work grows with the square
SPIKE = 4.0
SMALLEST = 0.005  # changes below half a percent of the level are no news, however steady the series is
# Of 2,000 series of independent normal noise fewer than 5 in 100 get a change, at 6 to 200 points: tests/unit/trends.
PENALTY, FEW = 4.0, 20.0


@dataclass(frozen=True, kw_only=True)
class Change:
    """The level before and after; ``index`` is the first point of the new level."""

    index: int
    before: float
    after: float


def changes_of(values: Sequence[float]) -> list[Change]:
    """The changes in order. Values must be finite; fewer than `MIN_POINTS` have none."""
    offset = max(0, len(values) - MAX_POINTS)
    values = values[offset:]
    num = len(values)
    if num < MIN_POINTS:
        return []
    level = median(abs(value) for value in values)
    sigma = max(noise_of(values), SMALLEST * level / 2, math.ulp(level or 1.0))
    starts = _partition(
        [value / sigma for value in without_spikes(values, sigma)], (PENALTY + FEW / num) * math.log(num)
    )
    means = [fmean(values[a:b]) for a, b in zip(starts, [*starts[1:], num], strict=True)]
    return [
        Change(index=start + offset, before=before, after=after)
        for start, before, after in zip(starts[1:], means, means[1:], strict=False)
        if abs(after - before) > SMALLEST * level
    ]


def noise_of(values: Sequence[float]) -> float:
    """A robust standard deviation from the differences of neighbours: 1.4826 MAD / √2 (Rousseeuw and Croux 1993)."""
    steps = [abs(second - first) for first, second in itertools.pairwise(values)]
    return 1.4826 * median(steps) / math.sqrt(2) if steps else 0.0


def without_spikes(values: Sequence[float], sigma: float) -> list[float]:
    """Single values `SPIKE` deviations off give way to the median of three around them: one bad day is no level."""
    num = len(values)
    middles = [median(values[max(0, min(i - 1, num - 3)) :][:3]) for i in range(num)]
    pairs = zip(values, middles, strict=True)
    return [middle if abs(value - middle) > SPIKE * sigma else value for value, middle in pairs]


def _partition(values: Sequence[float], penalty: float) -> list[int]:
    """The starts of the segments of least cost: squared distance from their means, and ``penalty`` for each."""
    num = len(values)
    sums, squares = [0.0], [0.0]
    for value in values:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def cost(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return squares[end] - squares[start] - total * total / (end - start)

    best, last = [-penalty] + [math.inf] * num, [0] * (num + 1)
    for end in range(MIN_SEGMENT, num + 1):
        for start in range(end - MIN_SEGMENT + 1):
            total = best[start] + cost(start, end) + penalty
            if total < best[end]:
                best[end], last[end] = total, start
    starts, end = [], num
    while end > 0:
        end = last[end]
        starts.append(end)
    return starts[::-1]
