"""What is new of one run since a place: its segments and events in order, its log, and its state."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from fastapi.sse import format_sse_event
from sqlalchemy.orm import Session

from server.db.engine import Database
from server.db.tables import Event, Run
from server.metrics.arrivals import Arrival, arrivals_after
from server.metrics.cursors import RunCursor
from server.metrics.read import columns_json
from server.records.events import event_json, events_of
from server.records.logs import read_log

FINAL_STATES = frozenset({"completed", "failed", "cancelled"})
_MAX_SEGMENTS = 200
_MAX_EVENTS = 500
_MAX_LOG_CHARS = 64 * 1024


class RunNews(msgspec.Struct, frozen=True, kw_only=True):
    """Messages ready to send, the place after them, and the run's state as it was when they were read.

    ``more``: another poll will find something at once. ``ended``: the run is final and everything of it was sent.
    """

    messages: list[bytes]
    cursor: RunCursor
    state: bytes
    active: bool
    more: bool
    ended: bool


def run_news(database: Database, run_id: int, cursor: RunCursor) -> RunNews | None:
    """What to send after the cursor, from one snapshot; None when the run is gone."""
    with database.read() as session:
        run = session.get(Run, run_id)
        if run is None:
            return None
        if cursor.attempt > run.attempt:
            cursor = RunCursor()  # from a history that is not this one: begin again
        messages, place, more = _frames(session, run_id, cursor)
        if not more:
            messages, place, more = _with_log(session, run_id, messages, place)
        if not more and place.attempt < run.attempt:
            place, more = RunCursor(place.attempt + 1), True
        return RunNews(
            messages=messages,
            cursor=place,
            state=msgspec.json.encode(run_state(run)),
            active=run.state == "running",
            more=more,
            ended=not more and run.state in FINAL_STATES,
        )


def run_state(run: Run) -> dict[str, Any]:
    """What a page shows of a run's progress."""
    return {
        "id": run.id,
        "state": run.state,
        "step": run.step,
        "steps": run.steps,
        "attempt": run.attempt,
        "numerics": run.numerics,
        "reason": run.reason,
        "result": run.result,
        "started_at": _spelled(run.started_at),
        "ended_at": _spelled(run.ended_at),
    }


def message(kind: str, content: Any, cursor: object) -> bytes:
    """One server-sent event on the wire; ``content`` is JSON, encoded or not."""
    data = content if isinstance(content, bytes) else msgspec.json.encode(content)
    return format_sse_event(data_str=data.decode(), event=kind, id=str(cursor))


def _frames(session: Session, run_id: int, cursor: RunCursor) -> tuple[list[bytes], RunCursor, bool]:
    """Segments and events after the cursor in the order of their sequence."""
    place = (cursor.attempt, cursor.sequence)
    arrivals = arrivals_after(session, run_id, cursor.attempt, cursor.sequence, _MAX_SEGMENTS)
    events = events_of(session, run_id, after=place, attempt=cursor.attempt, limit=_MAX_EVENTS)
    # A list that was cut short says nothing of what lies behind its end, so neither may the other.
    ends = [arrivals.through] if arrivals.more else []
    if len(events) == _MAX_EVENTS:
        ends.append(events[-1].sequence)
    found: list[Arrival | Event] = [*arrivals.items, *events]
    messages = []
    for item in sorted(found, key=lambda item: item.sequence):
        if ends and item.sequence > min(ends):
            break
        cursor = cursor._replace(sequence=item.sequence)
        messages.append(_event(item, cursor) if isinstance(item, Event) else _segment(item, cursor))
    through = min(ends) if ends else arrivals.through
    return messages, cursor._replace(sequence=max(cursor.sequence, through)), bool(ends)


def _segment(item: Arrival, cursor: RunCursor) -> bytes:
    series = {name: columns_json(points) for name, points in item.series.items()}
    return message("segment", {"attempt": cursor.attempt, "sequence": item.sequence, "series": series}, cursor)


def _event(row: Event, cursor: RunCursor) -> bytes:
    return message("event", event_json(row), cursor)


def _with_log(
    session: Session, run_id: int, messages: list[bytes], cursor: RunCursor
) -> tuple[list[bytes], RunCursor, bool]:
    piece = read_log(session, run_id, cursor.attempt, cursor.log_position, _MAX_LOG_CHARS)
    if not piece.text:
        return messages, cursor, False
    cursor = cursor._replace(log_position=piece.next_position)
    content = {"attempt": piece.attempt, "position": piece.position, "text": piece.text}
    return [*messages, message("log", content, cursor)], cursor, len(piece.text) >= _MAX_LOG_CHARS


def _spelled(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat()
