"""Draining workers."""

from __future__ import annotations

from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.db.tables import Worker
from server.errors import NotFound


def set_draining(session: Session, worker_id: int, draining: bool, principal: Principal) -> None:
    """Drain a worker, or let it take runs again; to do so twice changes nothing. Raises `NotFound`."""
    worker = session.get(Worker, worker_id, with_for_update=True)
    if worker is None:
        raise NotFound(f"worker {worker_id} does not exist: GET /api/v1/workers lists those that do")
    if worker.draining != draining:
        worker.draining = draining
        session.flush()
        record(session, principal.user_id, "worker.drain" if draining else "worker.undrain", f"worker/{worker.name}")
