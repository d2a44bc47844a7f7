"""Projects come into being with their first experiment."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from server.db.tables import Project

DEFAULT_PROJECT = "default"


def project_named(session: Session, name: str) -> Project:
    """The project of that name, created if it is new; two creators at once get the same one."""
    query = select(Project).where(Project.name == name)
    project = session.scalars(query).one_or_none()
    if project is not None:
        return project
    project = Project(name=name, created_at=datetime.now(UTC))
    try:
        with session.begin_nested():
            session.add(project)
    except IntegrityError:
        return session.scalars(query).one()
    return project
