"""Where points lie: the only module that knows segments are rows, so that folding them later changes no caller."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from server.db.tables import Segment
from server.metrics.codec import Points, concatenate, unpack

_ROWS_AT_ONCE = 256
_RUNS_AT_ONCE = 100
_LAST_STEP = 2**63 - 1


def load_points(
    session: Session,
    run_ids: Sequence[int],
    names: Collection[str],
    *,
    start: int | None = None,
    end: int | None = None,
    after: Mapping[int, int] | None = None,
) -> dict[int, dict[str, Points]]:
    """The points of the named series by run, sorted by step; series and runs without points are left out.

    ``start`` and ``end`` bound the steps, both included; ``after`` asks of a run only steps above the given one. Where
    attempts overlap the newest that has a step wins; steps repeated within an attempt keep their order of arrival.
    """
    bounds = {run_id: _later(start, (after or {}).get(run_id)) for run_id in run_ids}
    parts: dict[int, dict[str, list[tuple[int, Points]]]] = {}
    for run_id, attempt, payload in _rows(session, bounds, end):
        for name, points in unpack(payload, names).items():
            within = _within(points, bounds[run_id], end)
            if len(within):
                parts.setdefault(run_id, {}).setdefault(name, []).append((attempt, within))
    return {
        run_id: {name: newest_attempt_wins(pieces) for name, pieces in by_name.items()}
        for run_id, by_name in parts.items()
    }


def newest_attempt_wins(pieces: Sequence[tuple[int, Points]]) -> Points:
    """Merge pieces of (attempt, points), given in order of arrival, into points sorted by step."""
    points = concatenate(piece for _, piece in pieces)
    if len({attempt for attempt, _ in pieces}) > 1:
        attempts = np.repeat([attempt for attempt, _ in pieces], [len(piece) for _, piece in pieces])
        _, where = np.unique(points.steps, return_inverse=True)
        newest = np.zeros(int(where.max()) + 1, attempts.dtype)
        np.maximum.at(newest, where, attempts)
        points = points.take(attempts == newest[where])
    if np.any(points.steps[1:] < points.steps[:-1]):
        points = points.take(np.argsort(points.steps, kind="stable"))
    return points


def _rows(session: Session, bounds: Mapping[int, int | None], end: int | None) -> Iterator[tuple[int, int, bytes]]:
    """(run, attempt, payload) of the segments that can hold a wanted step, in order of arrival within each run."""
    remaining = iter(bounds)
    while run_ids := list(islice(remaining, _RUNS_AT_ONCE)):
        wanted = [
            Segment.run_id == run_id if (low := bounds[run_id]) is None else _from_step(run_id, low)
            for run_id in run_ids
        ]
        query = select(Segment.run_id, Segment.attempt, Segment.payload).where(or_(*wanted))
        if end is not None:
            query = query.where(Segment.min_step <= end)
        query = query.order_by(Segment.run_id, Segment.attempt, Segment.sequence)
        with session.execute(query.execution_options(yield_per=_ROWS_AT_ONCE)) as rows:
            yield from rows


def _from_step(run_id: int, low: int) -> ColumnElement[bool]:
    return and_(Segment.run_id == run_id, Segment.max_step >= low)


def _later(start: int | None, after: int | None) -> int | None:
    if after is None:
        return start
    return min(_LAST_STEP, after + 1 if start is None else max(start, after + 1))


def _within(points: Points, start: int | None, end: int | None) -> Points:
    if start is None and end is None:
        return points
    steps = points.steps
    mask = np.ones(len(steps), bool)
    if start is not None:
        mask &= steps >= start
    if end is not None:
        mask &= steps <= end
    return points if mask.all() else points.take(mask)
