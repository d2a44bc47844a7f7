"""How a run ends, and how its experiment ends with the last of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from server.db.tables import Attempt, Experiment, Run
from server.metrics.fold import fold
from server.queue.clock import store_now
from server.queue.durations import learn
from server.queue.lease import hold
from server.queue.pause import put_aside
from server.queue.seats import close_seats
from server.webhooks.outbox import announce_failure

Outcome = Literal["completed", "failed", "cancelled", "paused"]
OPEN = ("queued", "running", "paused")  # states of a run that has not ended


def finish(
    session: Session,
    run_id: int,
    attempt: int,
    outcome: Outcome,
    reason: dict[str, Any] | None = None,
    exit_code: int | None = None,
    now: datetime | None = None,
) -> None:
    """End a running attempt, its run, and the experiment if this was its last run; or put a paused run aside.

    Raises `LeaseLost`.

    ``reason`` is ``{kind, message, remedy?, traceback?}``; a completed run has none.
    """
    now = now or store_now(session)
    run = hold(session, run_id, attempt)
    if outcome == "paused" and run.cancel_requested_at is not None:
        outcome = "cancelled"  # asked for while it was being put aside
    if outcome == "cancelled" and run.reason is not None:  # who asked, noted when they did
        messages = (run.reason.get("message"), (reason or {}).get("message"))
        reason = {**run.reason, "message": " ".join(message for message in messages if message)}
    end_attempt(session, run, outcome, reason, now, exit_code)
    if outcome == "paused":
        put_aside(session, run)
        return
    end_run(session, run, outcome, reason, now)
    if outcome == "completed":
        learn(session, run, now)
    settle_experiment(session, run.experiment_id, now)


def end_run(session: Session, run: Run, outcome: Outcome, reason: dict[str, Any] | None, now: datetime) -> None:
    """Put the locked row into its final state and give up the lease."""
    run.state, run.reason, run.ended_at = outcome, reason, now
    run.lease_expires_at = run.pause_requested_at = None
    session.flush()
    if outcome == "failed":
        announce_failure(session, run, now)


def end_attempt(
    session: Session,
    run: Run,
    outcome: Outcome | Literal["lost"],
    reason: dict[str, Any] | None,
    now: datetime,
    exit_code: int | None = None,
) -> None:
    """Close the row of the run's current attempt and its seats, and fold what it left: it writes no more."""
    fold(session, run.id, run.attempt)
    if run.num_hosts > 1:
        close_seats(session, run.id, run.attempt, outcome, now)
    session.execute(
        update(Attempt)
        .where(Attempt.run_id == run.id, Attempt.number == run.attempt, Attempt.ended_at.is_(None))
        .values(ended_at=now, outcome=outcome, reason=reason, exit_code=exit_code)
    )


def settle_experiment(session: Session, experiment_id: int, now: datetime) -> None:
    """Bring the experiment's state in line with its runs.

    The experiment's row is locked before its runs are counted, so that of two runs ending at once the second sees
    the first. ``cancelled`` stays; an experiment all of whose runs were cancelled becomes so. Analyses
    do not count: they delay no verdict.
    """
    experiment = session.execute(
        select(Experiment)
        .where(Experiment.id == experiment_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).scalar_one()
    of_experiment = (Run.experiment_id == experiment_id, Run.role != "analysis")
    states = set(session.scalars(select(Run.state).where(*of_experiment).distinct()))
    if states & set(OPEN):
        return
    if states == {"cancelled"}:
        experiment.state = "cancelled"
    elif experiment.state != "cancelled":
        experiment.state = "ended"
    if experiment.ended_at is None:
        experiment.ended_at = now
    session.flush()
