"""Storing what a run's child process said: the one way in for frames and logs.

Everything is keyed by (run, attempt, sequence) or (run, attempt, position), so that a batch that is stored again, in
whole or in part, changes nothing. The caller's transaction decides: a batch is stored wholly or not at all, and so is
the folding that a batch sets off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from sqlalchemy import Table, insert, select, union_all
from sqlalchemy.orm import Session

from amp_core import events
from amp_core.errors import ProtocolError
from server.checkpoints.record import note_kept
from server.db.errors import LeaseLost
from server.db.json_values import clean_text, to_json
from server.db.tables import Event, Fold, Run, Segment
from server.metrics.codec import Points, concatenate, pack
from server.metrics.fold import Gathered, fold_of, fold_with, is_due, merged_series
from server.metrics.summaries import update_summaries
from server.records.artifacts import store_artifact
from server.records.events import clock, event_row
from server.records.logs import add_log

__all__ = ["LeaseLost", "add_frames", "check_held", "store_arrivals", "store_frames", "store_log"]

MAX_NAME_CHARS = 200
_INSERT_SEGMENTS = insert(cast(Table, Segment.__table__))


def store_frames(session: Session, run_id: int, attempt: int, frames: Sequence[events.Frame]) -> int:
    """Store the frames that are new and return how many those were.

    Segments become packed rows and series summaries, artifacts their own rows, everything else an event; `Started`
    and `Finished` also fill the run's row. Frames of an attempt come in the order of their sequence, in any batches.

    Raises:
        LeaseLost: when the run is not running this attempt; nothing is stored.
        ProtocolError: for a column that is no series.
    """
    return add_frames(session, _held_run(session, run_id, attempt), frames)


def add_frames(session: Session, run: Run, frames: Sequence[events.Frame]) -> int:
    """`store_frames` for a run whose row the caller has locked and checked."""
    with session.no_autoflush:  # one flush at the end writes each changed row once
        return _add_frames(session, run, frames)


def _add_frames(session: Session, run: Run, frames: Sequence[events.Frame]) -> int:
    gathered = fold_of(session, run.id, run.attempt)
    known = _stored_sequences(session, run.id, run.attempt, [frame.sequence for frame in frames])
    arrivals: list[Gathered] = []
    num_new, last_step, is_over = 0, 0, False
    for frame in frames:
        event = frame.event
        is_folded = isinstance(event, events.Segment) and frame.sequence <= gathered.sequence
        if is_folded or frame.sequence in known:
            continue
        known.add(frame.sequence)
        if isinstance(event, events.Segment):
            arrivals.append((frame.sequence, _columns(event)))
        elif isinstance(event, events.Artifact):
            num_new += store_artifact(session, run.id, run.attempt, event, clock(frame.at))
            continue
        else:
            told = event_row(run.id, run.attempt, frame)
            session.add(told)
            last_step = max(last_step, told.step or 0)
            is_over = is_over or isinstance(event, events.Finished | events.Failed | events.Paused)
            _note(run, event)
            if isinstance(event, events.Checkpointed) and event.kept:
                note_kept(session, run, event, clock(frame.at))
        num_new += 1
    if arrivals:
        last_step = max(last_step, _add_arrivals(session, gathered, arrivals, folds=is_over))
    if num_new:
        run.step = max(run.step, last_step)  # a new attempt begins at 0
    session.flush()
    return num_new


def store_arrivals(session: Session, run_id: int, attempt: int, arrivals: Sequence[Gathered], *, folds: bool) -> None:
    """Store segments of an attempt that nobody writes any more, such as an import's, and fold them when due or told."""
    _add_arrivals(session, fold_of(session, run_id, attempt), arrivals, folds=folds)


def _add_arrivals(session: Session, gathered: Fold, arrivals: Sequence[Gathered], *, folds: bool) -> int:
    """Store segments as rows, or at once as chunks when a fold is due; return the highest step."""
    merged = merged_series(arrivals)
    update_summaries(session, gathered.run_id, gathered.attempt, merged)
    num_points = sum(map(len, merged.values()))
    if folds or is_due(gathered, len(arrivals), num_points, len(merged)):
        fold_with(session, gathered, arrivals)
    else:
        rows = [_segment_row(gathered, sequence, columns) for sequence, columns in arrivals]
        session.connection().execute(_INSERT_SEGMENTS, rows)
        gathered.num_segments += len(rows)
        gathered.num_points += num_points
    return max((int(points.steps.max()) for points in merged.values()), default=0)


def store_log(session: Session, run_id: int, attempt: int, position: int, text: str) -> int:
    """Store the part of the text that is new and return its length; ``position`` counts characters before it.

    Raises:
        LeaseLost: when the run is not running this attempt; nothing is stored.
    """
    _held_run(session, run_id, attempt)
    return add_log(session, run_id, attempt, position, text)


def _held_run(session: Session, run_id: int, attempt: int) -> Run:
    """The run's row, locked against claim, cancel and reap until the transaction ends. Raises `LeaseLost`."""
    run = session.scalar(
        select(Run).where(Run.id == run_id).with_for_update(key_share=True).execution_options(populate_existing=True)
    )
    if run is None:
        raise LeaseLost(f"run {run_id} is not in the store any more: stop its process")
    check_held(run, attempt)
    return run


def check_held(run: Run, attempt: int) -> None:
    """Raises `LeaseLost` when the run is not running this attempt."""
    if run.state != "running" or run.attempt != attempt:
        raise LeaseLost(
            f"run {run.id} is {run.state} in attempt {run.attempt}; attempt {attempt} may not write any more: "
            "stop its process"
        )


def _stored_sequences(session: Session, run_id: int, attempt: int, sequences: list[int]) -> set[int]:
    if not sequences:
        return set()
    low, high = min(sequences), max(sequences)
    stored = [
        select(table.sequence).where(
            table.run_id == run_id, table.attempt == attempt, table.sequence.between(low, high)
        )
        for table in (Segment, Event)
    ]
    return set(session.scalars(union_all(*stored)))


def _note(run: Run, event: events.AnyEvent) -> None:
    """Copy onto the run's row what lists and pages ask of every run."""
    if isinstance(event, events.Started):
        known = {"num_parameters": event.num_parameters, "setup_s": event.setup_s}
        environment: dict[str, Any] = to_json(known | event.environment)
        run.environment = environment
        run.numerics = event.numerics
    elif isinstance(event, events.Finished):
        run.result = to_json(event)


def _columns(segment: events.Segment) -> dict[str, Points]:
    """The columns with points, checked; a name given twice in one segment is one series."""
    parts: dict[str, list[Points]] = {}
    for column in segment.columns:
        name = clean_text(column.name)
        size = len(column.steps)
        if not name or len(name) > MAX_NAME_CHARS:
            raise ProtocolError(f"series name {name[:60]!r} has {len(name)} characters: 1 to {MAX_NAME_CHARS} fit")
        if size % 8 or len(column.values) != size or len(column.times) != size:
            raise ProtocolError(
                f"series {name!r} has {size} bytes of steps, {len(column.values)} of values and {len(column.times)} of "
                "times: they must be equally many 8-byte numbers"
            )
        if size:
            parts.setdefault(name, []).append(
                Points(
                    steps=np.frombuffer(column.steps, "<i8"),
                    values=np.frombuffer(column.values, "<f8"),
                    times=np.frombuffer(column.times, "<f8"),
                )
            )
    return {name: concatenate(points) for name, points in parts.items()}


def _segment_row(gathered: Fold, sequence: int, columns: dict[str, Points]) -> dict[str, Any]:
    return {
        "run_id": gathered.run_id,
        "attempt": gathered.attempt,
        "sequence": sequence,
        "num_points": sum(map(len, columns.values())),
        "min_step": min((int(points.steps.min()) for points in columns.values() if len(points)), default=0),
        "max_step": max((int(points.steps.max()) for points in columns.values() if len(points)), default=0),
        "payload": pack(columns),
    }
