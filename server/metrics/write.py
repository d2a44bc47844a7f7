"""Storing what a run's child process said: the one way in for frames and logs.

Everything is keyed by (run, attempt, sequence) or (run, attempt, position), so that a batch that is stored again, in
whole or in part, changes nothing. The caller's transaction decides: a batch is stored wholly or not at all, and so is
the folding that a batch sets off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import select, union_all
from sqlalchemy.orm import Session

from amp_core import events
from amp_core.errors import ProtocolError
from server.db.errors import LeaseLost
from server.db.json_values import clean_text, to_json
from server.db.tables import Event, Run, Segment
from server.metrics.codec import Points, concatenate, pack
from server.metrics.fold import fold, fold_of, is_due
from server.metrics.summaries import update_summaries
from server.records.artifacts import store_artifact
from server.records.events import clock, event_row
from server.records.logs import add_log

__all__ = ["LeaseLost", "store_arrivals", "store_frames", "store_log"]

MAX_NAME_CHARS = 200


def store_frames(session: Session, run_id: int, attempt: int, frames: Sequence[events.Frame]) -> int:
    """Store the frames that are new and return how many those were.

    Segments become packed rows and series summaries, artifacts their own rows, everything else an event; `Started`
    and `Finished` also fill the run's row. Frames of an attempt come in the order of their sequence, in any batches.

    Raises:
        LeaseLost: when the run is not running this attempt; nothing is stored.
        ProtocolError: for a column that is no series.
    """
    run = _held_run(session, run_id, attempt)
    gathered = fold_of(session, run_id, attempt)
    known = _stored_sequences(session, run_id, attempt, [frame.sequence for frame in frames])
    series: dict[str, list[Points]] = {}
    num_new, last_step = 0, 0
    for frame in frames:
        event = frame.event
        is_folded = isinstance(event, events.Segment) and frame.sequence <= gathered.sequence
        if is_folded or frame.sequence in known:
            continue
        known.add(frame.sequence)
        if isinstance(event, events.Segment):
            columns = _columns(event)
            row = _segment_row(run_id, attempt, frame.sequence, columns)
            session.add(row)
            gathered.num_segments += 1
            gathered.num_points += row.num_points
            for name, points in columns.items():
                series.setdefault(name, []).append(points)
        elif isinstance(event, events.Artifact):
            num_new += store_artifact(session, run_id, attempt, event, clock(frame.at))
            continue
        else:
            told = event_row(run_id, attempt, frame)
            session.add(told)
            last_step = max(last_step, told.step or 0)
            _note(run, event)
        num_new += 1
    if num_new:
        merged = {name: concatenate(parts) for name, parts in series.items()}
        update_summaries(session, run_id, attempt, merged)
        last_step = max([last_step, *(int(points.steps.max()) for points in merged.values())])
        run.step = max(run.step, last_step)  # a new attempt begins at 0
    session.flush()
    if is_due(gathered):
        fold(session, run_id, attempt)
    return num_new


def store_arrivals(
    session: Session, run_id: int, attempt: int, arrivals: Sequence[tuple[int, dict[str, Points]]], *, folds: bool
) -> None:
    """Store segments of an attempt that nobody writes any more, such as an import's, and fold them when due or told."""
    gathered = fold_of(session, run_id, attempt)
    series: dict[str, list[Points]] = {}
    for sequence, columns in arrivals:
        row = _segment_row(run_id, attempt, sequence, columns)
        session.add(row)
        gathered.num_segments += 1
        gathered.num_points += row.num_points
        for name, points in columns.items():
            series.setdefault(name, []).append(points)
    update_summaries(session, run_id, attempt, {name: concatenate(parts) for name, parts in series.items()})
    if folds or is_due(gathered):
        fold(session, run_id, attempt)


def store_log(session: Session, run_id: int, attempt: int, position: int, text: str) -> int:
    """Store the part of the text that is new and return its length; ``position`` counts characters before it.

    Raises:
        LeaseLost: when the run is not running this attempt; nothing is stored.
    """
    _held_run(session, run_id, attempt)
    return add_log(session, run_id, attempt, position, text)


def _held_run(session: Session, run_id: int, attempt: int) -> Run:
    """The run's row, locked against claim, cancel and reap until the transaction ends."""
    run = session.scalar(
        select(Run).where(Run.id == run_id).with_for_update(key_share=True).execution_options(populate_existing=True)
    )
    if run is None:
        raise LeaseLost(f"run {run_id} is not in the store any more: stop its process")
    if run.state != "running" or run.attempt != attempt:
        raise LeaseLost(
            f"run {run_id} is {run.state} in attempt {run.attempt}; attempt {attempt} may not write any more: "
            "stop its process"
        )
    return run


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


def _segment_row(run_id: int, attempt: int, sequence: int, columns: dict[str, Points]) -> Segment:
    steps = concatenate(columns.values()).steps
    return Segment(
        run_id=run_id,
        attempt=attempt,
        sequence=sequence,
        num_points=len(steps),
        min_step=int(steps.min()) if len(steps) else 0,
        max_step=int(steps.max()) if len(steps) else 0,
        payload=pack(columns),
    )
