"""Events: typed facts of a run, never sampled."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from amp_core import events
from server.db.json_values import to_json
from server.db.tables import Event


def event_kind(event: events.AnyEvent) -> str:
    """The name an event is stored under: its tag in `amp_core.events`."""
    return str(event.__struct_config__.tag)


def event_row(run_id: int, attempt: int, frame: events.Frame) -> Event:
    """The row of a frame; the payload is the event in plain JSON."""
    return Event(
        run_id=run_id,
        attempt=attempt,
        sequence=frame.sequence,
        kind=event_kind(frame.event),
        step=getattr(frame.event, "step", None),
        payload=to_json(frame.event),
        at=clock(frame.at),
    )


def clock(seconds: float) -> datetime:
    """The child's unix seconds as a datetime; nonsense becomes now, because a wrong clock must not stop a run."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)


def events_of(
    session: Session,
    run_id: int,
    *,
    after: tuple[int, int] = (0, 0),
    kinds: Collection[str] = (),
    attempt: int | None = None,
    limit: int = 1000,
) -> list[Event]:
    """Events of a run after (attempt, sequence), in that order, of every attempt unless one is given."""
    query = select(Event).where(Event.run_id == run_id, tuple_(Event.attempt, Event.sequence) > tuple_(*after))
    if kinds:
        query = query.where(Event.kind.in_(kinds))
    if attempt is not None:
        query = query.where(Event.attempt == attempt)
    return list(session.scalars(query.order_by(Event.attempt, Event.sequence).limit(limit)))


def event_json(row: Event) -> dict[str, Any]:
    """An event as REST and streams give it."""
    return {
        "kind": row.kind,
        "step": row.step,
        "payload": row.payload,
        "at": row.at.isoformat(),
        "attempt": row.attempt,
        "sequence": row.sequence,
    }
