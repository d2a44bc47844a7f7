"""The different values of an indexed column, found by seeks: the cost is that of the answer, not of the table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.db.deleted import WITH_DELETED
from server.db.tables import Run, RunParameter, Series

MAX_VALUES = 200


def distinct_values(
    session: Session, column: InstrumentedAttribute[str], *conditions: Any, limit: int = MAX_VALUES
) -> list[str]:
    """Up to ``limit`` different values in the database's order, of a column of something that runs have.

    What only deleted runs have is left out.
    """
    found: list[str] = []
    query: Select[Any] = select(func.min(column)).where(*conditions)
    value = session.scalar(query)
    while value is not None and len(found) < limit:
        found.append(value)
        value = session.scalar(query.where(column > value))
    if not _is_any_run_deleted(session):
        return found
    of_run: Any = column.class_
    visible = select(of_run.run_id).join(Run, Run.id == of_run.run_id).where(*conditions).limit(1)
    return [value for value in found if session.scalar(visible.where(column == value)) is not None]


def _is_any_run_deleted(session: Session) -> bool:
    deleted = select(Run.id).where(Run.deleted_at.is_not(None)).limit(1)
    return session.scalar(deleted, execution_options=WITH_DELETED) is not None


def metric_names(session: Session, limit: int = MAX_VALUES) -> list[str]:
    """The names of all series, as far as they are few."""
    return distinct_values(session, Series.name, limit=limit)


def parameter_names(session: Session, limit: int = MAX_VALUES) -> list[str]:
    """The names of all parameters of runs, as far as they are few."""
    return distinct_values(session, RunParameter.name, limit=limit)
