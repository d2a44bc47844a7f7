"""Folding: the segments of an attempt become chunks of its series, so that reading never costs more than it shows.

A fold happens inside the writer's transaction, wholly or not at all: chunks appear, segments go, and the attempt's
`Fold` row says how far. Its cost is bounded by what gathered since the last one and one unfinished chunk per series,
whatever the length of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from server.db.tables import Axis, Chunk, Fold, Segment, Series
from server.metrics.chunk_codec import AxisColumns, pack_axis, pack_values, preview_of
from server.metrics.chunks import decoded
from server.metrics.codec import Points, concatenate, unpack

CHUNK_POINTS = 8192
FOLD_SEGMENTS = 256
FOLD_POINTS = 200_000
_NAMES_AT_ONCE = 200


class _New(NamedTuple):
    """A chunk to be written."""

    name: str
    number: int
    points: Points
    axis: AxisColumns


def fold_of(session: Session, run_id: int, attempt: int) -> Fold:
    """The attempt's row, made when it is missing."""
    row = session.get(Fold, (run_id, attempt))
    if row is None:
        row = Fold(run_id=run_id, attempt=attempt, sequence=0, num_segments=0, num_points=0)
        session.add(row)
    return row


def is_due(row: Fold) -> bool:
    """Whether enough has gathered to be folded."""
    return row.num_segments >= FOLD_SEGMENTS or row.num_points >= FOLD_POINTS


def fold(session: Session, run_id: int, attempt: int) -> int:
    """Fold every segment of the attempt; return how many those were. Nothing to fold changes nothing."""
    session.flush()
    rows = session.execute(
        select(Segment.sequence, Segment.payload)
        .where(Segment.run_id == run_id, Segment.attempt == attempt)
        .order_by(Segment.sequence)
    ).all()
    if not rows:
        return 0
    parts: dict[str, list[tuple[int, Points]]] = {}
    for sequence, payload in rows:
        for name, points in unpack(payload).items():
            if len(points):
                parts.setdefault(name, []).append((sequence, points))
    last = _last_numbers(session, run_id, attempt, list(parts))
    unfinished = _take_unfinished(session, run_id, attempt, last)
    new = [
        chunk
        for name, pieces in sorted(parts.items())
        for chunk in _cut(name, last[name] + (name not in unfinished), pieces, unfinished.get(name))
    ]
    _insert(session, run_id, attempt, new)
    through = rows[-1][0]
    session.execute(
        delete(Segment).where(Segment.run_id == run_id, Segment.attempt == attempt, Segment.sequence <= through)
    )
    row = fold_of(session, run_id, attempt)
    row.sequence, row.num_segments, row.num_points = through, 0, 0
    session.flush()
    return len(rows)


_Unfinished = dict[str, tuple[Points, AxisColumns]]


def _last_numbers(session: Session, run_id: int, attempt: int, names: list[str]) -> dict[str, int]:
    """The number of the last chunk of each series; -1 for a series without chunks. One seek in an index each."""
    of_series = (Chunk.run_id == run_id, Chunk.name == Series.name, Chunk.attempt == attempt)
    last = select(func.max(Chunk.number)).where(*of_series).correlate(Series).scalar_subquery()
    numbers: dict[str, int] = {}
    for start in range(0, len(names), _NAMES_AT_ONCE):
        query = select(Series.name, func.coalesce(last, -1)).where(
            Series.run_id == run_id, Series.attempt == attempt, Series.name.in_(names[start : start + _NAMES_AT_ONCE])
        )
        numbers |= {name: number for name, number in session.execute(query)}  # noqa: C416 - rows are no pairs
    return numbers


def _take_unfinished(session: Session, run_id: int, attempt: int, last: dict[str, int]) -> _Unfinished:
    """The unfinished chunks of the series, whose rows are deleted: what they hold is written anew.

    Only the last chunk of a series can be one; an earlier one is small when another version of this program wrote it.
    """
    names = list(last)
    found: dict[int, tuple[str, int]] = {}
    for start in range(0, len(names), _NAMES_AT_ONCE):
        query = select(Chunk.id, Chunk.name, Chunk.axis_id, Chunk.number).where(
            Chunk.run_id == run_id,
            Chunk.attempt == attempt,
            Chunk.num_points < CHUNK_POINTS,
            Chunk.name.in_(names[start : start + _NAMES_AT_ONCE]),
        )
        rows = session.execute(query)
        found |= {chunk_id: (name, axis_id) for chunk_id, name, axis_id, number in rows if number == last[name]}
    if not found:
        return {}
    taken = {found[chunk_id][0]: (points, axis) for chunk_id, points, axis in decoded(session, sorted(found))}
    session.execute(delete(Chunk).where(Chunk.id.in_(found)))
    axis_ids = {axis_id for _, axis_id in found.values()}
    still_used = select(Chunk.axis_id).where(Chunk.axis_id.in_(axis_ids))
    session.execute(delete(Axis).where(Axis.id.in_(axis_ids), Axis.id.not_in(still_used)))
    return taken


def _cut(
    name: str, number: int, pieces: list[tuple[int, Points]], unfinished: tuple[Points, AxisColumns] | None
) -> Iterator[_New]:
    """Chunks of `CHUNK_POINTS` points of a series from ``number`` on, in order of arrival; the last may be short."""
    points = concatenate(piece for _, piece in pieces)
    sequences = np.repeat([sequence for sequence, _ in pieces], [len(piece) for _, piece in pieces]).astype(np.int64)
    if unfinished is not None:
        points = concatenate([unfinished[0], points])
        sequences = np.concatenate((unfinished[1].sequences, sequences))
    for start in range(0, len(points), CHUNK_POINTS):
        part = slice(start, start + CHUNK_POINTS)
        chunk = Points(steps=points.steps[part], values=points.values[part], times=points.times[part])
        axis = AxisColumns(steps=chunk.steps, times=chunk.times, sequences=sequences[part])
        yield _New(name, number + start // CHUNK_POINTS, chunk, axis)


def _insert(session: Session, run_id: int, attempt: int, new: list[_New]) -> None:
    axes: dict[bytes, Axis] = {}
    of_chunk: list[Axis] = []
    for chunk in new:
        key = chunk.axis.key()
        if key not in axes:
            axes[key] = Axis(run_id=run_id, payload=pack_axis(chunk.axis))
        of_chunk.append(axes[key])
    session.add_all(axes.values())
    session.flush()
    rows = [_row(run_id, attempt, chunk, axis.id) for chunk, axis in zip(new, of_chunk, strict=True)]
    if rows:
        session.execute(insert(Chunk), rows)
    for axis in axes.values():
        session.expunge(axis)  # its bytes need not live as long as the session


def _row(run_id: int, attempt: int, chunk: _New, axis_id: int) -> dict[str, Any]:
    points = chunk.points
    if np.any(points.steps[1:] < points.steps[:-1]):
        points = points.take(np.argsort(points.steps, kind="stable"))
    shift, preview, non_finite = preview_of(points)
    return {
        "run_id": run_id,
        "name": chunk.name,
        "attempt": attempt,
        "number": chunk.number,
        "axis_id": axis_id,
        "first_sequence": int(chunk.axis.sequences[0]),
        "last_sequence": int(chunk.axis.sequences[-1]),
        "num_points": len(points),
        "min_step": int(points.steps[0]),
        "max_step": int(points.steps[-1]),
        "preview_shift": shift,
        "preview": preview,
        "non_finite": non_finite,
        "payload": pack_values(chunk.points.values),
    }
