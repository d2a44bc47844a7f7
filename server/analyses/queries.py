"""Reads the answers of analyses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Event, Run


def newest_report(session: Session, run_id: int) -> dict[str, Any] | None:
    """What a run's newest `amp_core.events.Report` says, or None when it has not said anything yet."""
    query = select(Event).where(Event.run_id == run_id, Event.kind == "report")
    row = session.scalars(query.order_by(Event.attempt.desc(), Event.sequence.desc()).limit(1)).first()
    if row is None:
        return None
    return {
        "run_id": run_id,
        "kind": row.payload["kind"],
        "attempt": row.attempt,
        "final": row.payload["final"],
        "at": row.at,
        "content": row.payload["content"],
    }


def newest_progress(session: Session, run_id: int) -> dict[str, Any] | None:
    """The payload of a run's newest `amp_core.events.Progress`: done, total, message."""
    query = select(Event.payload).where(Event.run_id == run_id, Event.kind == "progress")
    return session.scalars(query.order_by(Event.attempt.desc(), Event.sequence.desc()).limit(1)).first()


def analyses_of(session: Session, experiment_id: int, kinds: Collection[str] = ()) -> list[Run]:
    """The analysis runs of an experiment, the oldest first."""
    query = select(Run).where(Run.experiment_id == experiment_id, Run.role == "analysis")
    if kinds:
        query = query.where(Run.kind.in_(kinds))
    return list(session.scalars(query.order_by(Run.id)))
