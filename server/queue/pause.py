"""Pausing a run: it writes a checkpoint, gives its devices back, and waits until someone resumes it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from server.db.tables import Run
from server.queue.clock import store_now


def pause_run(session: Session, run_id: int, now: datetime | None = None) -> str:
    """Pause a run and return its state: a queued one at once, a running one when its worker has stopped it.

    A run that has ended, or that is to be cancelled, stays as it is.
    """
    now = now or store_now(session)
    run = session.get_one(Run, run_id, with_for_update=True, populate_existing=True)
    if run.state == "queued":
        run.state, run.reserved_at = "paused", None
        session.flush()
    elif run.state == "running" and run.cancel_requested_at is None and run.pause_requested_at is None:
        run.pause_requested_at = now
        session.flush()
    return run.state


def resume_run(session: Session, run_id: int) -> bool:
    """Queue a paused run again: its next attempt goes on from the checkpoint. False if it is not paused."""
    run = session.get_one(Run, run_id, with_for_update=True, populate_existing=True)
    if run.state != "paused":
        return False
    run.state, run.reason = "queued", None
    run.pause_requested_at = run.published_at = None
    session.flush()
    return True


def put_aside(session: Session, run: Run) -> None:
    """Put the locked row of a running run into state ``paused`` and give up its lease; the attempt costs it none."""
    run.state, run.reason = "paused", None
    run.worker_id = run.lease_expires_at = run.pause_requested_at = None
    run.max_attempts += 1
    session.flush()
