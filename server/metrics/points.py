"""The points of series wherever they lie: folded into chunks, or in segments that are not folded yet.

Reads that may thin take previews of chunks instead of their points wherever the result is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from server.db.tables import Segment
from server.metrics.chunk_codec import Counts, read_counts, read_previews
from server.metrics.chunks import ChunkRow, chunk_rows, decode_chunks
from server.metrics.codec import Points, concatenate, unpack
from server.metrics.downsample import first_shift

_ROWS_AT_ONCE = 256
_RUNS_AT_ONCE = 100
_LAST_STEP = 2**63 - 1
_Series = tuple[int, str]  # run and name


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one series sorted by step, which stand for ``num_stored`` of them.

    Where chunks were not decoded their previews stand in; ``is_exact`` marks the other points, and ``counts`` are the
    non-finite counts of the previews.
    """

    points: Points
    num_stored: int
    is_exact: NDArray[np.bool_]
    counts: Counts


class _Piece(msgspec.Struct):
    attempt: int
    points: Points
    num_stored: int
    is_exact: bool = True


def load_points(
    session: Session,
    run_ids: Sequence[int],
    names: Collection[str],
    *,
    start: int | None = None,
    end: int | None = None,
    after: Mapping[int, int] | None = None,
    max_points: int | None = None,
) -> dict[int, dict[str, Loaded]]:
    """The named series by run; series and runs without points are left out.

    ``start`` and ``end`` bound the steps, both included; ``after`` asks of a run only steps above the given one. Where
    attempts overlap the newest that has a step wins; steps repeated within an attempt keep their order of arrival.
    With ``max_points``, what `server.metrics.downsample` makes of the result is what it makes of every point.
    """
    bounds = {run_id: _later(start, (after or {}).get(run_id)) for run_id in run_ids}
    tails: dict[_Series, list[_Piece]] = {}
    for run_id, attempt, payload in _segments(session, bounds, end):
        for name, points in unpack(payload, names).items():
            within = _within(points, bounds[run_id], end)
            if len(within):
                tails.setdefault((run_id, name), []).append(_Piece(attempt, within, len(within)))
    chunks: dict[_Series, list[ChunkRow]] = {}
    for row in chunk_rows(session, bounds, names, end, previews=max_points is not None):
        chunks.setdefault((row.run_id, row.name), []).append(row)
    needed = {
        row.id
        for key, rows in chunks.items()
        for row in _to_decode(rows, tails.get(key, []), bounds[key[0]], end, max_points)
    }
    points_of = decode_chunks(session, sorted(needed))
    loaded: dict[int, dict[str, Loaded]] = {}
    for run_id, name in sorted(chunks.keys() | tails.keys()):
        rows, tail = chunks.get((run_id, name), []), tails.get((run_id, name), [])
        found = _loaded(rows, tail, points_of, bounds[run_id], end)
        if found is not None and not found.is_exact.all() and found.num_stored <= (max_points or 0):
            # What the window or a later attempt cut away was the excess: every point fits, so no preview may stand in.
            points_of |= decode_chunks(session, [row.id for row in rows if row.id not in points_of])
            found = _loaded(rows, tail, points_of, bounds[run_id], end)
        if found is not None:
            loaded.setdefault(run_id, {})[name] = found
    return loaded


def _loaded(
    rows: list[ChunkRow], tail: list[_Piece], points_of: Mapping[int, Points], start: int | None, end: int | None
) -> Loaded | None:
    """One series from its decoded chunks, the previews of the others, and its segments; None without any point."""
    pieces = _pieces(rows, points_of, start, end) + tail
    if not pieces:
        return None
    return _merged(pieces, read_counts([row.non_finite for row in rows if row.id not in points_of]))


def _to_decode(
    rows: list[ChunkRow], tail: list[_Piece], start: int | None, end: int | None, max_points: int | None
) -> Iterator[ChunkRow]:
    """The chunks whose preview does not do: cut by the window, overlapped by another attempt, or too coarse."""
    num_points = sum(row.num_points for row in rows) + sum(piece.num_stored for piece in tail)
    if max_points is None or num_points <= max_points:
        yield from rows
        return
    ranges = _ranges_by_attempt(rows, tail)
    whole: list[ChunkRow] = []
    for row in rows:
        is_cut = (start is not None and row.min_step < start) or (end is not None and row.max_step > end)
        is_overlapped = any(
            attempt != row.attempt and low <= row.max_step and row.min_step <= high
            for attempt, (low, high) in ranges.items()
        )
        if is_cut or is_overlapped:
            yield row
        else:
            whole.append(row)
    if whole:
        span = max(row.max_step for row in whole) - min(row.min_step for row in whole)
        finest = first_shift(span, max_points)
        yield from (row for row in whole if row.preview_shift > finest)


def _ranges_by_attempt(rows: list[ChunkRow], tail: list[_Piece]) -> dict[int, tuple[int, int]]:
    ranges: dict[int, tuple[int, int]] = {}
    found = [(row.attempt, row.min_step, row.max_step) for row in rows]
    found += [(piece.attempt, int(piece.points.steps.min()), int(piece.points.steps.max())) for piece in tail]
    for attempt, low, high in found:
        known = ranges.get(attempt, (low, high))
        ranges[attempt] = (min(known[0], low), max(known[1], high))
    return ranges


def _pieces(rows: list[ChunkRow], points_of: Mapping[int, Points], start: int | None, end: int | None) -> list[_Piece]:
    """Points or preview of every chunk, in order of arrival."""
    previewed = [row for row in rows if row.id not in points_of]
    previews = dict(zip((row.id for row in previewed), read_previews([row.preview for row in previewed]), strict=True))
    pieces = []
    for row in rows:
        if row.id in previews:
            pieces.append(_Piece(row.attempt, previews[row.id], row.num_points, is_exact=False))
            continue
        within = _within(points_of[row.id], start, end)
        if len(within):
            pieces.append(_Piece(row.attempt, within, len(within)))
    return pieces


def _merged(pieces: list[_Piece], counts: Counts) -> Loaded:
    pieces = sorted(pieces, key=lambda piece: piece.attempt)  # stable: chunks before the segments of their attempt
    points, order = newest_attempt_wins([(piece.attempt, piece.points) for piece in pieces])
    is_exact = np.repeat([piece.is_exact for piece in pieces], [len(piece.points) for piece in pieces])
    unseen = sum(piece.num_stored - len(piece.points) for piece in pieces)
    return Loaded(
        points=points,
        num_stored=len(points) + unseen,
        is_exact=is_exact if order is None else is_exact[order],
        counts=counts,
    )


def newest_attempt_wins(pieces: Sequence[tuple[int, Points]]) -> tuple[Points, NDArray[np.intp] | None]:
    """Merge pieces of (attempt, points), given in order of arrival, into points sorted by step.

    Also which of all points those are, None for all in their order.
    """
    points = concatenate(piece for _, piece in pieces)
    order: NDArray[np.intp] | None = None
    if len({attempt for attempt, _ in pieces}) > 1:
        attempts = np.repeat([attempt for attempt, _ in pieces], [len(piece) for _, piece in pieces])
        _, where = np.unique(points.steps, return_inverse=True)
        newest = np.zeros(int(where.max()) + 1, attempts.dtype)
        np.maximum.at(newest, where, attempts)
        order = np.flatnonzero(attempts == newest[where])
        points = points.take(order)
    if np.any(points.steps[1:] < points.steps[:-1]):
        by_step = np.argsort(points.steps, kind="stable")
        order = by_step if order is None else order[by_step]
        points = points.take(by_step)
    return points, order


def _segments(session: Session, bounds: Mapping[int, int | None], end: int | None) -> Iterator[tuple[int, int, bytes]]:
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
