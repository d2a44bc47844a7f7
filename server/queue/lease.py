"""The right to write for a run: one worker holds it, for one attempt, until its lease expires."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from server.db.errors import LeaseLost
from server.db.tables import Run
from server.queue.clock import store_now
from server.queue.seats import renew_seat


@dataclass(frozen=True, kw_only=True)
class Renewal:
    """What a heartbeat learns: attempts that are no longer ours, and runs someone asked to cancel or to pause."""

    lost: frozenset[tuple[int, int]]
    cancelled: frozenset[int]
    paused: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class StopRequests:
    """Runs that someone asked to cancel, and runs that someone asked to pause."""

    cancelled: frozenset[int]
    paused: frozenset[int]


def renew(
    session: Session,
    worker_id: int,
    attempts: Collection[tuple[int, int]],
    lease_s: float,
    now: datetime | None = None,
) -> Renewal:
    """Prolong the leases of ``attempts``, pairs of run id and attempt number: of whole runs, or of a seat in one.

    A lease that has expired but that nobody has reaped yet is still ours, and is prolonged.
    """
    now = now or store_now(session)
    expires_at = now + timedelta(seconds=lease_s)
    lost, cancelled, paused = set[tuple[int, int]](), set[int](), set[int]()
    for run_id, attempt in sorted(attempts):
        held = (
            update(Run)
            .where(Run.id == run_id, Run.attempt == attempt, Run.state == "running", Run.worker_id == worker_id)
            .values(lease_expires_at=expires_at)
            .returning(Run.cancel_requested_at, Run.pause_requested_at, Run.num_hosts)
        )
        row = session.execute(held).one_or_none()
        is_seated = row is None or row[2] > 1
        if is_seated and renew_seat(session, worker_id, run_id, attempt, expires_at) and row is None:
            asked = select(Run.cancel_requested_at, Run.pause_requested_at, Run.num_hosts).where(Run.id == run_id)
            row = session.execute(asked).one()
        if row is None:
            lost.add((run_id, attempt))
        elif row[0] is not None:
            cancelled.add(run_id)
        elif row[1] is not None:
            paused.add(run_id)
    return Renewal(lost=frozenset(lost), cancelled=frozenset(cancelled), paused=frozenset(paused))


def stop_requests(session: Session, run_ids: Collection[int]) -> StopRequests:
    """Those of ``run_ids`` that someone asked to stop; a read, cheap enough for each second."""
    asked = session.execute(
        select(Run.id, Run.cancel_requested_at).where(
            Run.id.in_(run_ids), or_(Run.cancel_requested_at.is_not(None), Run.pause_requested_at.is_not(None))
        )
    ).all()
    cancelled = frozenset(run_id for run_id, cancelled_at in asked if cancelled_at is not None)
    return StopRequests(cancelled=cancelled, paused=frozenset(run_id for run_id, _ in asked) - cancelled)


def hold(session: Session, run_id: int, attempt: int) -> Run:
    """The run's row, locked, if it still runs this attempt. Raises `LeaseLost`."""
    held = (
        select(Run).where(Run.id == run_id, Run.attempt == attempt, Run.state == "running").with_for_update()
    ).execution_options(populate_existing=True)
    run = session.execute(held).scalar_one_or_none()
    if run is None:
        raise LeaseLost(
            f"run {run_id} is no longer running attempt {attempt}: its lease went to another worker or the run ended; "
            "nothing more is written for this attempt"
        )
    return run
