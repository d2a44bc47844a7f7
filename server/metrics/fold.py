"""Folding: the segments of an attempt become chunks of its series, so that reading never costs more than it shows.

A fold happens inside the writer's transaction, wholly or not at all: chunks appear, segments go, and the attempt's
`Fold` row says how far. Its cost is bounded by what gathered since the last one and one unfinished chunk per series,
whatever the length of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from sqlalchemy import Table, delete, func, insert, select
from sqlalchemy.orm import Session

from server.db.tables import Axis, Chunk, Fold, Segment, Series
from server.metrics.chunk_codec import AxisColumns, pack_axis, pack_values, preview_of
from server.metrics.chunks import decoded
from server.metrics.codec import Points, concatenate, unpack

CHUNK_POINTS = 8192
FOLD_SEGMENTS = 256
FOLD_POINTS = 200_000
_NAMES_AT_ONCE = 200
_INSERT_AXIS = insert(cast(Table, Axis.__table__)).returning(Axis.id)
_INSERT_CHUNKS = insert(cast(Table, Chunk.__table__))

Gathered = tuple[int, dict[str, Points]]  # a segment: its sequence and what it brought


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


def is_due(row: Fold, num_segments: int, num_points: int, num_series: int) -> bool:
    """Whether so much has gathered with these new segments that it is folded, or they alone are worth it."""
    if row.num_segments + num_segments >= FOLD_SEGMENTS or row.num_points + num_points >= FOLD_POINTS:
        return True
    return 2 * num_points >= CHUNK_POINTS * max(1, num_series)


def merged_series(arrivals: Sequence[Gathered]) -> dict[str, Points]:
    """The points of every series that has any, in order of arrival."""
    return {name: concatenate(points for _, points in parts) for name, parts in _by_series(arrivals).items()}


def fold(session: Session, run_id: int, attempt: int) -> int:
    """Fold every segment of the attempt; return how many those were. Nothing to fold changes nothing."""
    return fold_with(session, fold_of(session, run_id, attempt), [])


def fold_with(session: Session, row: Fold, fresh: Sequence[Gathered]) -> int:
    """`fold`, and in the same go ``fresh`` segments that come after the others and never were rows."""
    run_id, attempt = row.run_id, row.attempt
    rows = session.execute(
        select(Segment.sequence, Segment.payload)
        .where(Segment.run_id == run_id, Segment.attempt == attempt)
        .order_by(Segment.sequence)
    ).all()
    gathered = [*((sequence, unpack(payload)) for sequence, payload in rows), *fresh]
    if not gathered:
        return 0
    parts = _by_series(gathered)
    last = _last_numbers(session, run_id, attempt, list(parts))
    unfinished = _take_unfinished(session, run_id, attempt, last)
    new = [
        chunk
        for name, pieces in sorted(parts.items())
        for chunk in _cut(name, last[name] + (name not in unfinished), pieces, unfinished.get(name))
    ]
    _insert(session, run_id, attempt, new)
    if rows:
        session.execute(
            delete(Segment).where(Segment.run_id == run_id, Segment.attempt == attempt, Segment.sequence <= rows[-1][0])
        )
    row.sequence, row.num_segments, row.num_points = gathered[-1][0], 0, 0
    session.flush()
    return len(gathered)


def _by_series(gathered: Sequence[Gathered]) -> dict[str, list[tuple[int, Points]]]:
    parts: dict[str, list[tuple[int, Points]]] = {}
    for sequence, columns in gathered:
        for name, points in columns.items():
            if len(points):
                parts.setdefault(name, []).append((sequence, points))
    return parts


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
    connection = session.connection()
    axis_ids: dict[bytes, int] = {}
    rows = []
    for chunk in new:
        key = chunk.axis.key()
        if key not in axis_ids:
            axis = {"run_id": run_id, "payload": pack_axis(chunk.axis)}
            axis_ids[key] = connection.execute(_INSERT_AXIS, axis).scalar_one()
        rows.append(_row(run_id, attempt, chunk, axis_ids[key]))
    if rows:
        connection.execute(_INSERT_CHUNKS, rows)


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
