"""Segments that nobody will fold any more: of attempts that ended without their writer, or before there was folding."""

from __future__ import annotations

from sqlalchemy import or_, select

from server.db.engine import Database
from server.db.tables import Fold, Run
from server.metrics.fold import fold

FINAL_STATES = ("completed", "failed", "cancelled")


def fold_leftovers(database: Database, limit: int = 20) -> int:
    """Fold what ended attempts left, each in a transaction of its own; return how many attempts that were."""
    is_over = or_(Run.state.in_(FINAL_STATES), Fold.attempt < Run.attempt)
    query = select(Fold.run_id, Fold.attempt).join(Run, Run.id == Fold.run_id).where(Fold.num_segments > 0, is_over)
    with database.read() as session:
        found = session.execute(query.limit(limit)).all()
    for run_id, attempt in found:
        with database.write() as session:
            if session.get(Run, run_id, with_for_update={"key_share": True}) is not None:
                fold(session, run_id, attempt)
    return len(found)
