"""Runs whose worker fell silent, stopped or restarted: the attempt is lost, the run goes back into the queue."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select, update
from sqlalchemy.orm import Session

from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Attempt, Run, Seat, Worker
from server.queue.clock import store_now
from server.queue.finish import OPEN, end_attempt, end_run, settle_experiment
from server.queue.lease import hold
from server.queue.pause import put_aside


@dataclass(frozen=True, kw_only=True)
class Reaped:
    """A run that lost its attempt, and the state it is in now."""

    run_id: int
    attempt: int
    state: str


MAX_AHEAD_S = 600.0  # no lease is given for so long, so one that ends later is of a clock that was set back since


def reap(session: Session, now: datetime | None = None, max_ahead_s: float = math.inf) -> list[Reaped]:
    """End attempts whose lease, or that of a seat, has expired; requeue their runs while attempts are left, else fail.

    So do attempts whose lease ends more than ``max_ahead_s`` from now: nobody renewed it since the clock was set back.
    A seat that a dead worker never took is nobody's fault: it costs the run no attempt.
    """
    now = now or store_now(session)
    over = Run.lease_expires_at < now
    seat_over = Seat.lease_expires_at < now
    if math.isfinite(max_ahead_s):
        ahead = now + timedelta(seconds=max_ahead_s)
        over = or_(over, Run.lease_expires_at > ahead)
        seat_over = or_(seat_over, Seat.lease_expires_at > ahead)
    broken = and_(Run.num_hosts > 1, _has_seat(seat_over))
    expired = select(Run).where(Run.state == "running", or_(over, broken))
    reaped = []
    for run in _locked(session, expired):
        reason, charged = _silence(session, run, seat_over)
        run.max_attempts += 0 if charged else 1
        reaped.append(_lose(session, run, reason, now))
    return reaped


def lose(
    session: Session,
    run_id: int,
    attempt: int,
    reason: dict[str, Any],
    exit_code: int | None = None,
    now: datetime | None = None,
) -> Reaped:
    """End an attempt that its own worker calls lost, since another of its hosts broke away. Raises `LeaseLost`."""
    run = hold(session, run_id, attempt)
    return _lose(session, run, reason, now or store_now(session), exit_code)


def _has_seat(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether the run's attempt has an open seat of which all this is true."""
    seats = select(Seat.node).where(Seat.run_id == Run.id, Seat.attempt == Run.attempt, Seat.state != "ended")
    return seats.where(*conditions).exists()


class Reaper:
    """Reaps again and again, and patiently when silence may not be the workers' fault.

    After an outage of the store, a start, a sleep of this host, or a jump of the store's clock, workers get
    ``patience_s`` (a lease's length) to renew before anything is taken from them.
    """

    def __init__(self, database: Database, patience_s: float) -> None:
        self._database = database
        self._patience_s = patience_s
        self._last = -math.inf  # wall clock: monotonic time stands still while the host sleeps
        self._store_ahead_s: float | None = None  # of the store's clock over monotonic time, at the last round
        self._patient_until = -math.inf  # monotonic
        self._is_store_away = False

    def reap(self) -> list[Reaped]:
        """One round, in a transaction of its own. Raises what `Database.write` raises."""
        started = time.time()
        is_late, self._last = started - self._last > self._patience_s, started
        try:
            with self._database.write() as session:
                now = store_now(session)
                has_jumped = self._has_jumped(now)
                if is_late or self._is_store_away or has_jumped:  # workers can renew only from now on
                    self._patient_until = time.monotonic() + self._patience_s
                self._is_store_away = False
                if time.monotonic() < self._patient_until:
                    return []
                return reap(session, now, max(MAX_AHEAD_S, 10 * self._patience_s))
        except StoreUnavailable:
            self._is_store_away = True
            raise

    def _has_jumped(self, now: datetime) -> bool:
        """Whether the store's clock was set since the last round, by enough to end a lease before its time."""
        ahead_s = now.timestamp() - time.monotonic()
        before_s, self._store_ahead_s = self._store_ahead_s, ahead_s
        return before_s is not None and abs(ahead_s - before_s) > self._patience_s / 4


def release(
    session: Session, worker_id: int, message: str, *, charged: bool = True, now: datetime | None = None
) -> list[Reaped]:
    """Take back at once what a worker still holds: it restarted after a crash, or it stops and says so.

    With ``charged`` false (an orderly stop) the lost attempt does not count against the run's ``max_attempts``. A seat
    that is only reserved can still be taken by a worker that has restarted, but not by one that stops.
    """
    now = now or store_now(session)
    of_worker = _has_seat(Seat.worker_id == worker_id, *([Seat.state == "taken"] if charged else []))
    seated = and_(Run.num_hosts > 1, of_worker)
    held = select(Run).where(Run.state == "running", or_(Run.worker_id == worker_id, seated))
    remedy = "A new attempt goes on from the last checkpoint, or from step 1 without one."
    reason = {"kind": "lost", "message": message, "remedy": remedy}
    runs = _locked(session, held)
    if not charged:
        for run in runs:
            run.max_attempts += 1
    return [_lose(session, run, reason, now) for run in runs]


def stale_queued(session: Session, older_than_s: float = 5.0, now: datetime | None = None) -> int:
    """How many queued runs no doorbell was rung for lately; they are marked as published now.

    The caller rings after its commit: a message may be lost, a row is not.
    """
    now = now or store_now(session)
    stale = (
        update(Run)
        .where(
            Run.state == "queued",
            or_(Run.published_at.is_(None), Run.published_at < now - timedelta(seconds=older_than_s)),
        )
        .values(published_at=now)
        .returning(Run.id)
    )
    return len(session.execute(stale).scalars().all())


def _locked(session: Session, runs: Select[Run]) -> Sequence[Run]:
    """The rows, locked; those another reaper holds are left to it. Ordered so that experiments lock in one order."""
    ordered = runs.order_by(Run.experiment_id, Run.id).with_for_update(skip_locked=True)
    return session.scalars(ordered.execution_options(populate_existing=True)).all()


def _silence(session: Session, run: Run, seat_over: ColumnElement[bool]) -> tuple[dict[str, Any], bool]:
    """Who fell silent, and whether the attempt counts."""
    remedy = "See whether the worker's host was restarted or ran out of memory, then retry the run."
    seat = None if run.num_hosts == 1 else _silent_seat(session, run, seat_over)
    if seat is None:
        worker = session.execute(
            select(Attempt.worker_name).where(Attempt.run_id == run.id, Attempt.number == run.attempt)
        ).scalar_one_or_none()
        message = f"Worker {worker or 'unknown'} stopped answering during attempt {run.attempt}; its lease ran out."
        return {"kind": "lost", "message": message, "remedy": remedy}, True
    node, state, reserved_at, worker, heartbeat_at = seat
    who = f"Worker {worker}, host {node + 1} of {run.num_hosts},"
    if state == "taken":
        message = f"{who} stopped answering during attempt {run.attempt}; its lease ran out."
        return {"kind": "lost", "message": message, "remedy": remedy}, True
    message = f"{who} did not take its seat in attempt {run.attempt}."
    return {"kind": "lost", "message": message, "remedy": remedy}, heartbeat_at > reserved_at


def _silent_seat(session: Session, run: Run, over: ColumnElement[bool]) -> Any:
    query = (
        select(Seat.node, Seat.state, Seat.reserved_at, Worker.name, Worker.heartbeat_at)
        .join(Worker, Worker.id == Seat.worker_id)
        .where(Seat.run_id == run.id, Seat.attempt == run.attempt, Seat.state != "ended", Seat.node > 0, over)
        .order_by(Seat.node)
        .limit(1)
    )
    return session.execute(query).one_or_none()


def _lose(session: Session, run: Run, reason: dict[str, Any], now: datetime, exit_code: int | None = None) -> Reaped:
    end_attempt(session, run, "lost", reason, now, exit_code)
    if run.cancel_requested_at is not None:
        end_run(session, run, "cancelled", {**reason, "kind": "cancelled"}, now)
    elif run.pause_requested_at is not None:  # its devices are free, which is what was asked for
        put_aside(session, run)
    elif run.attempt >= run.max_attempts:
        message = f"{reason['message']} That was attempt {run.attempt} of {run.max_attempts}."
        end_run(session, run, "failed", {**reason, "message": message}, now)
    else:
        run.state, run.reason = "queued", reason
        run.worker_id = run.lease_expires_at = run.published_at = None
        session.flush()
    if run.state not in OPEN:
        settle_experiment(session, run.experiment_id, now)
    return Reaped(run_id=run.id, attempt=run.attempt, state=run.state)
