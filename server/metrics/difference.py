"""Curves minus a pinned one: what a run differs by at each step that both have, before anything is thinned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from server.metrics.codec import Points, concatenate
from server.metrics.downsample import MIN_POINTS, downsample
from server.metrics.points import Loaded, load_points
from server.metrics.read import Window

EVENT_SERIES = frozenset({"amp/skipped"})  # 0 and 1: an event, not a figure, and left as it is
MOST_POINTS = 4_000_000  # read at once over all series; beyond it, of each what its chunks' previews keep


def difference_windows(
    session: Session,
    run_ids: Sequence[int],
    names: Collection[str],
    minus: Sequence[int],
    *,
    max_points: int,
    start: int | None = None,
    end: int | None = None,
) -> dict[int, dict[str, Window]]:
    """Windows as `server.metrics.read.windows` gives them, of each series minus that of the pinned runs.

    Several pinned runs are averaged step by step. The difference is taken over every stored point and thinned
    afterwards, so that its own extremes are kept. A value that is not finite stays what it is; a step at which a pinned
    run is not finite has no difference and is left out, and so is one that no pinned run has.
    """
    ids = list(dict.fromkeys([*run_ids, *minus]))
    most = max(MIN_POINTS, MOST_POINTS // max(1, len(ids) * len(names)))
    loaded = load_points(session, ids, names, start=start, end=end, max_points=most)
    found: dict[int, dict[str, Window]] = {}
    for name in sorted(names):
        pinned = _pinned(loaded, minus, name)
        for run_id in run_ids:
            held = loaded.get(run_id, {}).get(name)
            if held is None or (pinned is None and name not in EVENT_SERIES):
                continue
            points = held.points if pinned is None or name in EVENT_SERIES else subtract(held.points, *pinned)
            if len(points):
                found.setdefault(run_id, {})[name] = _window(run_id, name, points, max_points)
    return found


def subtract(points: Points, steps: NDArray[np.int64], values: NDArray[np.float64]) -> Points:
    """The points (N,) minus ``values`` (M,) at equal steps; ``steps`` (M,) rise and do not repeat."""
    if not len(steps):
        return points.take(~np.isfinite(points.values))
    at = np.minimum(np.searchsorted(steps, points.steps), len(steps) - 1)
    own, other = points.values, values[at]
    kept = ~np.isfinite(own) | ((steps[at] == points.steps) & np.isfinite(other))
    with np.errstate(invalid="ignore"):
        difference = np.where(np.isfinite(own), own - other, own)
    return Points(steps=points.steps[kept], values=difference[kept], times=points.times[kept])


def mean_by_step(points: Sequence[Points]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rising steps (M,) and the mean (M,) of what lies at each; not finite where any of it is not."""
    together = concatenate(points)
    steps, place = np.unique(together.steps, return_inverse=True)
    with np.errstate(invalid="ignore"):
        sums = np.bincount(place, weights=together.values, minlength=len(steps))
    return steps, sums / np.bincount(place, minlength=len(steps))


def _pinned(
    loaded: Mapping[int, Mapping[str, Loaded]], minus: Sequence[int], name: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    held = [loaded[run_id][name].points for run_id in minus if name in loaded.get(run_id, {})]
    return mean_by_step(held) if held else None


def _window(run_id: int, name: str, points: Points, max_points: int) -> Window:
    kept, bin_width = downsample(points, max_points)
    return Window(
        run_id=run_id,
        name=name,
        kind="exact" if bin_width is None else "binned",
        num_stored=len(points),
        bin_width=bin_width,
        points=kept,
        counts=None,
    )
