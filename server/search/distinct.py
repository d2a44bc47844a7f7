"""The different values of an indexed column, found by seeks: the cost is that of the answer, not of the table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.db.tables import RunParameter, Series

MAX_VALUES = 200


def distinct_values(
    session: Session, column: InstrumentedAttribute[str], *conditions: Any, limit: int = MAX_VALUES
) -> list[str]:
    """Up to ``limit`` different values in the database's order."""
    found: list[str] = []
    query: Select[Any] = select(func.min(column)).where(*conditions)
    value = session.scalar(query)
    while value is not None and len(found) < limit:
        found.append(value)
        value = session.scalar(query.where(column > value))
    return found


def metric_names(session: Session, limit: int = MAX_VALUES) -> list[str]:
    """The names of all series, as far as they are few."""
    return distinct_values(session, Series.name, limit=limit)


def parameter_names(session: Session, limit: int = MAX_VALUES) -> list[str]:
    """The names of all parameters of runs, as far as they are few."""
    return distinct_values(session, RunParameter.name, limit=limit)
