"""Reading chunks: which there are for a window, and the points of those that must be decoded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from sqlalchemy import ColumnElement, LargeBinary, and_, literal, or_, select
from sqlalchemy.orm import Session

from server.db.tables import Axis, Chunk
from server.metrics.chunk_codec import AxisColumns, unpack_axis, unpack_values
from server.metrics.codec import Points

_RUNS_AT_ONCE = 100
_CHUNKS_AT_ONCE = 400
_COLUMNS = (Chunk.id, Chunk.run_id, Chunk.name, Chunk.attempt, Chunk.num_points, Chunk.min_step, Chunk.max_step)
_NO_PREVIEW = (literal(0), literal(b"", LargeBinary), literal(b"", LargeBinary))


class ChunkRow(NamedTuple):
    """A chunk without its payload."""

    id: int
    run_id: int
    name: str
    attempt: int
    num_points: int
    min_step: int
    max_step: int
    preview_shift: int
    preview: bytes
    non_finite: bytes


def chunk_rows(
    session: Session, bounds: Mapping[int, int | None], names: Collection[str], end: int | None, *, previews: bool
) -> list[ChunkRow]:
    """The chunks of the named series that can hold a step in the window, in order of arrival within each series.

    ``bounds`` maps run to first step, None for no bound. Without ``previews`` those two columns are empty.
    """
    columns = (Chunk.preview_shift, Chunk.preview, Chunk.non_finite) if previews else _NO_PREVIEW
    rows: list[ChunkRow] = []
    for run_ids in _batches(bounds, _RUNS_AT_ONCE):
        query = select(
            *_COLUMNS,
            *columns,
        ).where(_of_runs(run_ids, bounds), Chunk.name.in_(names))
        if end is not None:
            query = query.where(Chunk.min_step <= end)
        query = query.order_by(Chunk.run_id, Chunk.name, Chunk.attempt, Chunk.number)
        rows += map(ChunkRow._make, session.execute(query))
    return rows


def decode_chunks(session: Session, chunk_ids: Sequence[int]) -> dict[int, Points]:
    """The points of the chunks, in order of arrival, by chunk id."""
    return {chunk_id: points for chunk_id, points, _ in decoded(session, chunk_ids)}


def decoded(session: Session, chunk_ids: Sequence[int]) -> Iterator[tuple[int, Points, AxisColumns]]:
    """Id, points and axis of the chunks; an axis that several share is decoded once."""
    for ids in _batches(chunk_ids, _CHUNKS_AT_ONCE):
        rows = session.execute(select(Chunk.id, Chunk.axis_id, Chunk.payload).where(Chunk.id.in_(ids))).all()
        axis_ids = sorted({axis_id for _, axis_id, _ in rows})
        packed = dict(session.execute(select(Axis.id, Axis.payload).where(Axis.id.in_(axis_ids))).all())
        for axis_id, sharing in groupby(sorted(rows, key=lambda row: row[1]), key=lambda row: row[1]):
            axis = unpack_axis(packed[axis_id])
            for chunk_id, _, payload in sharing:
                yield chunk_id, Points(steps=axis.steps, values=unpack_values(payload), times=axis.times), axis


def _of_runs(run_ids: Sequence[int], bounds: Mapping[int, int | None]) -> ColumnElement[bool]:
    free = [run_id for run_id in run_ids if bounds[run_id] is None]
    bound = [
        and_(Chunk.run_id == run_id, Chunk.max_step >= low) for run_id in run_ids if (low := bounds[run_id]) is not None
    ]
    return or_(Chunk.run_id.in_(free), *bound) if free or not bound else or_(*bound)


def _batches(items: Iterable[int], size: int) -> Iterator[list[int]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
