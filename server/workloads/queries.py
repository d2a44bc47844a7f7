"""Which workloads there are now: of each name the version a worker saw last."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Workload


def current_workloads(session: Session) -> list[Workload]:
    """The newest version of each name, by name; broken files among them, with their error."""
    newest: dict[str, Workload] = {}
    for workload in session.scalars(select(Workload).order_by(Workload.seen_at, Workload.id)):
        newest[workload.name] = workload
    return [newest[name] for name in sorted(newest)]


def find_workload(session: Session, name: str) -> Workload | None:
    """The newest version of that name."""
    query = select(Workload).where(Workload.name == name).order_by(Workload.seen_at.desc(), Workload.id.desc())
    return session.scalars(query.limit(1)).first()


def workload_json(workload: Workload) -> dict[str, Any]:
    """What REST and pages tell of a workload version."""
    description = workload.description
    return {
        "name": workload.name,
        "source_hash": workload.source_hash,
        "path": workload.path,
        "title": description.get("title") or workload.name,
        "summary": description.get("summary", ""),
        "steps": description.get("steps"),
        "recipes": description.get("recipes", []),
        "primary": description.get("primary"),
        "parameters": description.get("parameters", []),
        "error": workload.error,
        "first_seen_at": workload.first_seen_at,
        "seen_at": workload.seen_at,
    }
