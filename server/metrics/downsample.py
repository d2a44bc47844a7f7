"""Fewer points for a chart without losing what matters: every extreme and every non-finite value stays visible.

Bins are 2^k steps wide and begin at multiples of their width, so that they do not move when the window does. Each
keeps its first and last point, its smallest and largest finite value, and its first NaN, +inf and -inf: real points,
never averages.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from server.metrics.codec import Points

MIN_POINTS = 16  # two bins, the fewest that any steps need, keep up to seven points each
_WIDEST = 63  # a shift by 63 leaves two bins: negative steps and the others


def downsample(points: Points, max_points: int, num_stored: int | None = None) -> tuple[Points, int | None]:
    """At most ``max_points`` of the points, which are sorted by step, and the width of a bin in steps.

    The width is None when nothing had to be left out. ``max_points`` is at least `MIN_POINTS`. ``num_stored`` says how
    many points these stand for when some were thinned already, in bins no wider than `first_shift` of their span: the
    result is that of all points.
    """
    assert max_points >= MIN_POINTS, "the caller checks max_points"
    if (num_stored or len(points)) <= max_points:
        return points, None
    shift = first_shift(int(points.steps[-1]) - int(points.steps[0]), max_points)
    while True:
        # What a wide bin keeps is among what its halves keep, so each round works on the last round's points.
        points = kept_points(points, shift)
        if len(points) <= max_points or shift == _WIDEST:
            return points, 2**shift
        shift += 1


def first_shift(span: int, max_points: int) -> int:
    """Exponent of the narrowest bins that can be worth trying over ``span`` steps: two points to a bin."""
    return min(_WIDEST, max(0, (2 * span // max_points).bit_length() - 1))


def kept_points(points: Points, shift: int) -> Points:
    """What bins of 2^``shift`` steps keep of points sorted by step."""
    return points.take(_kept(points.steps >> shift, points.values))


def _kept(bins: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Indices, ascending, of the points that stay; ``bins`` is sorted."""
    edges = np.flatnonzero(np.diff(bins)) + 1
    starts = np.concatenate(([0], edges))
    lasts = np.concatenate((edges, [len(bins)])) - 1
    which = np.repeat(np.arange(len(starts)), lasts - starts + 1)
    finite = np.isfinite(values)
    lowest = np.minimum.reduceat(np.where(finite, values, np.inf), starts)
    highest = np.maximum.reduceat(np.where(finite, values, -np.inf), starts)
    masks = (
        finite & (values == lowest[which]),
        finite & (values == highest[which]),
        np.isnan(values),
        np.isposinf(values),
        np.isneginf(values),
    )
    return np.unique(np.concatenate([starts, lasts, *(_first_of_each(which, mask) for mask in masks)]))


def _first_of_each(which: NDArray[np.intp], mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """The first marked index of every bin that has one."""
    marked = np.flatnonzero(mask)
    bins = which[marked]
    return marked[np.concatenate(([True], bins[1:] != bins[:-1]))] if len(marked) else marked
