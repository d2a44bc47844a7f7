"""Rows of `workloads`: which versions there are, and which is the current one of its name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from server.db.tables import Workload
from server.queue.clock import store_now
from worker.describe import Described

MAX_NAME_CHARS = 80


def record(session: Session, described: Described, modified_at: datetime) -> None:
    """Make or refresh the row of this version, and make it current if its file changed after the current one's.

    The current version of a name is the one with the newest ``seen_at``. A host that starts with an old copy of a
    file therefore does not take the place of a newer one from elsewhere.
    """
    now = store_now(session)
    name = described.name[:MAX_NAME_CHARS]
    row = session.scalars(
        select(Workload).where(Workload.name == name, Workload.source_hash == described.source_hash)
    ).one_or_none()
    if row is None:
        row = Workload(name=name, source_hash=described.source_hash, path=str(described.path), first_seen_at=now,
                       seen_at=now, description=described.description, error=described.error)  # fmt: skip
        try:
            with session.begin_nested():
                session.add(row)
        except IntegrityError:  # another host recorded the same version meanwhile
            return
        return
    current = session.scalars(select(Workload).where(Workload.name == name).order_by(Workload.seen_at.desc()).limit(1))
    newest = current.one()
    row.description, row.error, row.path = described.description, described.error, str(described.path)
    if newest.id != row.id and modified_at > newest.seen_at:
        row.seen_at = now
    session.flush()


def mark_removed(session: Session, path: Path) -> None:
    """Say of the versions that came from this file that it is gone."""
    session.execute(
        update(Workload)
        .where(Workload.path == str(path), Workload.error.is_(None))
        .values(error=f"The file {path} was removed; put it back to submit this workload again.")
    )
