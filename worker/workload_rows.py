"""Rows of `workloads`: which versions there are, and which is the current one of its name."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy import delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from server.db.tables import Experiment, Workload
from server.queue.clock import store_now
from server.version import VERSION
from worker.describe import Described
from worker.workload_files import source_text

MAX_NAME_CHARS = 80
DESCRIBED_BY = "described_by"  # key of a description: the version of the program that made it


def record_file(session: Session, path: Path, versions: Sequence[Described], modified_at: datetime) -> None:
    """Bring the rows of a file in line with what it defines now; without versions the file is gone.

    What it no longer defines stays only where an experiment used it, with an error that says so.
    """
    for described in versions:
        _record(session, described, modified_at)
    names = [described.name[:MAX_NAME_CHARS] for described in versions]
    gone = Workload.path == str(path), Workload.name.not_in(names)
    session.execute(delete(Workload).where(*gone, Workload.id.not_in(select(Experiment.workload_id))))
    what = f"{path} no longer defines this workload" if versions else f"The file {path} was removed"
    remedy = f"{what}; put it back to submit the workload again."
    session.execute(update(Workload).where(*gone, Workload.error.is_(None)).values(error=remedy))


def described_before(session: Session, path: Path, source_hash: str) -> list[Described]:
    """What this version of the program found in this file earlier; empty if anything has changed or was broken."""
    rows = session.scalars(
        select(Workload).where(Workload.path == str(path), Workload.source_hash == source_hash)
    ).all()
    if any(row.error is not None or row.description.get(DESCRIBED_BY) != VERSION for row in rows):
        return []
    return [
        Described(name=row.name, path=path, source_hash=source_hash, description=row.description, error=None)
        for row in rows
    ]


def _record(session: Session, described: Described, modified_at: datetime) -> None:
    """Make or refresh the row of this version, and make it current if its file changed after the current one's.

    The current version of a name is the one with the newest ``seen_at``. A host that starts with an old copy of a
    file therefore does not take the place of a newer one from elsewhere.
    """
    now = store_now(session)
    description = {**described.description, DESCRIBED_BY: VERSION}
    name = described.name[:MAX_NAME_CHARS]
    row = session.scalars(
        select(Workload).where(Workload.name == name, Workload.source_hash == described.source_hash)
    ).one_or_none()
    if row is None:
        row = Workload(name=name, source_hash=described.source_hash, path=str(described.path), first_seen_at=now,
                       seen_at=now, description=description, error=described.error,
                       source=source_text(described.path, described.source_hash))  # fmt: skip
        try:
            with session.begin_nested():
                session.add(row)
        except IntegrityError:  # another host recorded the same version meanwhile
            return
        return
    newest = session.scalars(
        select(Workload).where(Workload.name == name).order_by(Workload.seen_at.desc(), Workload.id.desc()).limit(1)
    ).one()
    row.description, row.error, row.path = description, described.error, str(described.path)
    if row.source is None:  # recorded before sources were kept
        row.source = source_text(described.path, described.source_hash)
    if newest.id != row.id and modified_at > newest.seen_at:
        row.seen_at = now
    session.flush()
