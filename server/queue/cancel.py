"""Cancelling runs and experiments, and putting ended runs back into the queue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Experiment, Run
from server.queue.clock import store_now
from server.queue.finish import OPEN, end_run, settle_experiment

RETRIED = ("failed", "cancelled")


def cancel_run(session: Session, run_id: int, by: str = "", now: datetime | None = None) -> str:
    """Cancel a run and return its state: a waiting one ends at once, a running one when its worker has stopped it.

    A run that has ended stays as it is. ``by`` is the name shown in the reason.
    """
    now = now or store_now(session)
    run = _locked_run(session, run_id)
    _cancel(session, run, by, now)
    if run.state == "cancelled":
        settle_experiment(session, run.experiment_id, now)
    return run.state


def cancel_experiment(session: Session, experiment_id: int, by: str = "", now: datetime | None = None) -> int:
    """Cancel every run that has not ended; return how many that were. Without any the experiment stays as it is."""
    now = now or store_now(session)
    active = (
        select(Run)
        .where(Run.experiment_id == experiment_id, Run.state.in_(OPEN))
        .order_by(Run.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    runs = session.execute(active).scalars().all()
    for run in runs:
        _cancel(session, run, by, now)
    if any(run.role != "analysis" for run in runs):
        experiment = session.get_one(Experiment, experiment_id, with_for_update=True)
        experiment.state = "cancelled"
        session.flush()
        settle_experiment(session, experiment_id, now)
    return len(runs)


def retry_run(session: Session, run_id: int) -> bool:
    """Queue a failed or cancelled run again as its next attempt; False if it is open or completed.

    Its experiment is open again, and is judged once all its runs have ended; an analysis changes nothing there.
    """
    run = _locked_run(session, run_id)
    if run.state not in RETRIED:
        return False
    _queue_again(session, run.experiment_id, [run])
    return True


def retry_experiment(session: Session, experiment_id: int) -> int:
    """Queue every failed or cancelled run of an experiment again, as `retry_run` does; return how many."""
    ended = (
        select(Run)
        .where(Run.experiment_id == experiment_id, Run.state.in_(RETRIED))
        .order_by(Run.id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    runs = session.execute(ended).scalars().all()
    _queue_again(session, experiment_id, runs)
    return len(runs)


def _queue_again(session: Session, experiment_id: int, runs: Sequence[Run]) -> None:
    """Queue the locked rows; the experiment is open again if one of them is part of its plan."""
    for run in runs:
        run.state, run.reason, run.ended_at = "queued", None, None
        run.cancel_requested_at = run.worker_id = run.lease_expires_at = run.published_at = None
        run.max_attempts = max(run.max_attempts, run.attempt + 1)
    session.flush()
    if any(run.role != "analysis" for run in runs):
        experiment = session.get_one(Experiment, experiment_id, with_for_update=True)
        experiment.state = "running"
        experiment.ended_at = experiment.judged_at = experiment.comparison = None
        session.flush()


def _locked_run(session: Session, run_id: int) -> Run:
    return session.get_one(Run, run_id, with_for_update=True, populate_existing=True)


def _cancel(session: Session, run: Run, by: str, now: datetime) -> None:
    message = f"Cancelled by {by}." if by else "Cancelled."
    if run.state in ("queued", "paused"):
        run.cancel_requested_at = now
        end_run(session, run, "cancelled", {"kind": "cancelled", "message": message}, now)
    elif run.state == "running" and run.cancel_requested_at is None:
        run.cancel_requested_at = now
        run.reason = {"kind": "cancelled", "message": message}
        session.flush()
