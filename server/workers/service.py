"""Draining workers, and noticing lost ones."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.db.tables import Worker
from server.errors import NotFound
from server.queue.clock import store_now
from server.webhooks.outbox import announce_loss


def set_draining(session: Session, worker_id: int, draining: bool, principal: Principal) -> None:
    """Drain a worker, or let it take runs again; to do so twice changes nothing. Raises `NotFound`."""
    worker = session.get(Worker, worker_id, with_for_update=True)
    if worker is None:
        raise NotFound(f"worker {worker_id} does not exist: GET /api/v1/workers lists those that do")
    if worker.draining != draining:
        worker.draining = draining
        session.flush()
        record(session, principal.user_id, "worker.drain" if draining else "worker.undrain", f"worker/{worker.name}")


def note_lost_workers(session: Session, lease_s: float, now: datetime | None = None) -> list[str]:
    """Mark workers that fell silent without signing off, and tell of each once; return their names.

    Twice a lease is waited for, so that a worker that is only slow is not called lost.
    """
    now = now or store_now(session)
    silent = (
        select(Worker)
        .where(
            Worker.state != "offline",
            Worker.lost_at.is_(None),
            Worker.heartbeat_at < now - timedelta(seconds=2 * lease_s),
        )
        .order_by(Worker.id)
        .with_for_update(skip_locked=True)
    )
    lost = session.scalars(silent).all()
    for worker in lost:
        worker.lost_at = now
        announce_loss(session, worker, now)
    session.flush()
    return [worker.name for worker in lost]
