"""Deleted experiments and runs are invisible: one rule for every query of every page, route, worker and export.

A deletion sets ``deleted_at`` and the rows stay until it can no longer be undone; until then no ORM SELECT of this
program sees them, unless it carries `WITH_DELETED`. Bulk updates and deletions name their rows themselves.
"""

from __future__ import annotations

from sqlalchemy import event
from sqlalchemy.orm import ORMExecuteState, Session, with_loader_criteria

from server.db.tables import Experiment, Run

WITH_DELETED = {"with_deleted": True}  # execution_options of a statement that is about deleted rows

_VISIBLE = tuple(
    with_loader_criteria(table, table.deleted_at.is_(None), include_aliases=True) for table in (Experiment, Run)
)


class StoreSession(Session):
    """A session that sees no deleted row."""


@event.listens_for(StoreSession, "do_orm_execute")
def _hide_deleted(state: ORMExecuteState) -> None:
    if state.is_select and not state.is_column_load and not state.execution_options.get("with_deleted", False):
        state.statement = state.statement.options(*_VISIBLE)
