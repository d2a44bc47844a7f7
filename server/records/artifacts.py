"""Artifacts: small files of a run, kept in the store and addressed by id, never by a path."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session, undefer

from amp_core import events
from server.db.json_values import clean_text
from server.db.tables import Artifact, Run


def store_artifact(session: Session, run_id: int, attempt: int, event: events.Artifact, at: datetime) -> bool:
    """Keep the artifact; one of the same name from a later step replaces it. Returns whether anything changed."""
    name = clean_text(event.name)[:200]
    row = session.scalar(
        select(Artifact).where(Artifact.run_id == run_id, Artifact.attempt == attempt, Artifact.name == name)
    )
    if row is not None and row.step >= event.step:
        return False
    if row is None:
        row = Artifact(run_id=run_id, attempt=attempt, name=name)
        session.add(row)
    row.media_type = clean_text(event.media_type)[:80]
    row.step = event.step
    row.num_bytes = len(event.content)
    row.sha256 = hashlib.sha256(event.content).hexdigest()
    row.content = event.content
    row.created_at = at
    session.flush()
    return True


def artifacts_of(session: Session, run_ids: Sequence[int]) -> list[Artifact]:
    """The artifacts of the runs without their content, the newest attempt of each name, by run and name."""
    newest = (
        select(Artifact.run_id, Artifact.name, func.max(Artifact.attempt).label("attempt"))
        .where(Artifact.run_id.in_(run_ids))
        .group_by(Artifact.run_id, Artifact.name)
        .subquery()
    )
    query = (
        select(Artifact)
        .join(
            newest,
            (Artifact.run_id == newest.c.run_id)
            & (Artifact.name == newest.c.name)
            & (Artifact.attempt == newest.c.attempt),
        )
        .order_by(Artifact.run_id, Artifact.name)
    )
    return list(session.scalars(query))


def artifact_with_content(session: Session, artifact_id: int) -> Artifact | None:
    """The artifact with its bytes loaded; None also when its run is deleted."""
    query = select(Artifact).join(Run, Run.id == Artifact.run_id).where(Artifact.id == artifact_id)
    return session.scalars(query.options(undefer(Artifact.content))).one_or_none()
