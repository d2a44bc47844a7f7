"""Points in the order they arrived, segment by segment, whether the segments are still rows or lie in chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.db.tables import Axis, Chunk, Fold, Segment
from server.metrics.chunk_codec import AxisColumns, unpack_axis
from server.metrics.chunks import decoded
from server.metrics.codec import Points, concatenate, unpack


class Arrival(NamedTuple):
    """What one segment brought: the points of its series by name."""

    sequence: int
    series: dict[str, Points]


class Arrivals(NamedTuple):
    """Arrivals in order. Nothing up to ``through`` is missing; with ``more`` there may be something behind it."""

    items: list[Arrival]
    through: int
    more: bool


def arrivals_after(
    session: Session, run_id: int, attempt: int, sequence: int, limit: int, names: Collection[str] | None = None
) -> Arrivals:
    """At most ``limit`` arrivals of an attempt after ``sequence``, of the named series or of all.

    A segment without points of those series counts, but is left out.
    """
    folded = _folded(session, run_id, attempt)
    if sequence < folded:
        return _from_chunks(session, (run_id, attempt, folded), sequence, limit, names)
    rows = session.execute(
        select(Segment.sequence, Segment.payload)
        .where(Segment.run_id == run_id, Segment.attempt == attempt, Segment.sequence > sequence)
        .order_by(Segment.sequence)
        .limit(limit)
    ).all()
    items = [Arrival(number, series) for number, payload in rows if (series := _sorted(unpack(payload, names)))]
    return Arrivals(items, rows[-1][0] if rows else sequence, len(rows) == limit)


def last_arrival(session: Session, run_id: int, attempt: int) -> int:
    """The sequence of the newest segment stored of an attempt; 0 when there is none."""
    waiting = select(func.max(Segment.sequence)).where(Segment.run_id == run_id, Segment.attempt == attempt)
    folded = select(Fold.sequence).where(Fold.run_id == run_id, Fold.attempt == attempt)
    return session.scalar(select(func.coalesce(waiting.scalar_subquery(), folded.scalar_subquery(), 0))) or 0


def last_arrivals(session: Session, run_ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """The sequence of the newest segment stored, by run and attempt; those without any are left out."""
    folds = select(Fold.run_id, Fold.attempt, Fold.sequence).where(Fold.run_id.in_(run_ids))
    waiting = select(Segment.run_id, Segment.attempt, func.max(Segment.sequence)).where(Segment.run_id.in_(run_ids))
    newest = {(run_id, attempt): sequence for run_id, attempt, sequence in session.execute(folds)}
    for run_id, attempt, sequence in session.execute(waiting.group_by(Segment.run_id, Segment.attempt)):
        newest[run_id, attempt] = sequence  # segments come after what is folded
    return newest


def _folded(session: Session, run_id: int, attempt: int) -> int:
    query = select(Fold.sequence).where(Fold.run_id == run_id, Fold.attempt == attempt)
    return session.scalar(query) or 0


def _from_chunks(
    session: Session, fold: tuple[int, int, int], sequence: int, limit: int, names: Collection[str] | None
) -> Arrivals:
    run_id, attempt, _ = fold
    through = _last_of(session, fold, sequence, limit)
    query = (
        select(Chunk.id, Chunk.name)
        .where(
            Chunk.run_id == run_id,
            Chunk.attempt == attempt,
            Chunk.last_sequence > sequence,
            Chunk.first_sequence <= through,
        )
        .order_by(Chunk.name, Chunk.number)
    )
    if names is not None:
        query = query.where(Chunk.name.in_(names))
    rows = session.execute(query).all()
    pieces = {chunk_id: (points, axis) for chunk_id, points, axis in decoded(session, [row[0] for row in rows])}
    found: dict[int, dict[str, list[Points]]] = {}
    for chunk_id, name in rows:
        for number, points in _by_sequence(*pieces[chunk_id], sequence, through):
            found.setdefault(number, {}).setdefault(name, []).append(points)
    items = [
        Arrival(number, {name: concatenate(parts) for name, parts in found[number].items()}) for number in sorted(found)
    ]
    return Arrivals(items, through, more=True)


def _by_sequence(points: Points, axis: AxisColumns, after: int, through: int) -> Iterator[tuple[int, Points]]:
    """The points of a chunk that came after one sequence and no later than another, segment by segment."""
    low, high = np.searchsorted(axis.sequences, [after + 1, through + 1]).tolist()
    if low == high:
        return
    inner = np.flatnonzero(np.diff(axis.sequences[low:high])) + low + 1
    for start, stop in pairwise([low, *inner.tolist(), high]):
        part = slice(start, stop)
        yield (
            int(axis.sequences[start]),
            Points(steps=points.steps[part], values=points.values[part], times=points.times[part]),
        )


def _last_of(session: Session, fold: tuple[int, int, int], sequence: int, limit: int) -> int:
    """The sequence of the last of the next ``limit`` arrivals of any series, or the end of what is folded."""
    run_id, attempt, folded = fold
    query = (
        select(Chunk.axis_id, Chunk.first_sequence)
        .where(Chunk.run_id == run_id, Chunk.attempt == attempt, Chunk.last_sequence > sequence)
        .distinct()
        .order_by(Chunk.first_sequence)
    )
    known = np.empty(0, np.int64)
    for axis_id, first in session.execute(query):
        if len(known) >= limit and first > known[limit - 1]:
            break
        payload = session.scalar(select(Axis.payload).where(Axis.id == axis_id))
        assert payload is not None, "a chunk's axis goes with the chunk"
        sequences = unpack_axis(payload).sequences
        known = np.union1d(known, sequences[sequences > sequence])
    return folded if len(known) < limit else int(known[limit - 1])


def _sorted(series: dict[str, Points]) -> dict[str, Points]:
    return {name: series[name] for name in sorted(series) if len(series[name])}
