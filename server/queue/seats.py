"""Seats: the parts of a run on several hosts. They are reserved together, each is held under a lease of its own.

The claim that begins an attempt reserves a seat on each host in one transaction; its own worker is node 0, which keeps
the run's record. The other workers find their seats when they look for work. One seat that breaks ends the attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Connection, and_, bindparam, exists, insert, select, tuple_, update
from sqlalchemy.orm import Session

from server.db.base import table_of
from server.db.errors import LeaseLost
from server.db.tables import Run, Seat, Worker
from server.queue.clock import store_now

SeatOutcome = Literal["completed", "failed", "lost", "stopped"]
TAKE_S = 60.0  # how long a live worker may take to begin its part
BROKEN = ("failed", "lost")  # outcomes that end the whole attempt

_run, _seat, _worker = table_of(Run).c, table_of(Seat).c, table_of(Worker).c
_OF_THE_ATTEMPT = and_(_run.id == _seat.run_id, _run.attempt == _seat.attempt, _run.state == "running")
_RESERVED = (
    select(_seat.run_id, _seat.attempt, _seat.node, _seat.endpoint, _run.num_hosts, _run.device)
    .select_from(table_of(Seat).join(table_of(Run), _OF_THE_ATTEMPT))
    .where(_seat.worker_id == bindparam("worker_id"), _seat.state == "reserved")
    .order_by(_seat.reserved_at)
)
_ADD = insert(table_of(Seat))
_MACHINES = select(_worker.id, _worker.host).where(_worker.id.in_(bindparam("ids", expanding=True)))


@dataclass(frozen=True, kw_only=True)
class ReservedSeat:
    """A seat that waits for its worker."""

    run_id: int
    attempt: int
    node: int
    endpoint: str
    num_hosts: int
    device: str


@dataclass(frozen=True, kw_only=True)
class SeatState:
    """How a seat stands. ``is_silent``: it is open, and its lease is over."""

    node: int
    worker: str
    outcome: str | None
    reason: dict[str, Any] | None
    is_open: bool
    is_silent: bool


def reserve_seats(
    connection: Connection,
    run_id: int,
    attempt: int,
    workers: Sequence[int],
    devices: Sequence[str],
    endpoint: str,
    now: datetime,
    lease_s: float,
) -> None:
    """A seat for each of these workers: the first has begun, on ``devices``; the others have a lease's time to."""
    machines = {row.id: row.host for row in connection.execute(_MACHINES, {"ids": list(workers)})}
    connection.execute(
        _ADD,
        [
            {
                "run_id": run_id, "attempt": attempt, "node": node, "worker_id": worker_id,
                "machine": machines[worker_id], "state": "reserved" if node else "taken", "endpoint": endpoint,
                "devices": [] if node else list(devices), "reserved_at": now, "taken_at": None if node else now,
                "lease_expires_at": now + timedelta(seconds=lease_s), "log": "",
            }
            for node, worker_id in enumerate(workers)
        ],
    )  # fmt: skip


def reserved_for(connection: Connection, worker_id: int) -> list[ReservedSeat]:
    """The seats that wait for this worker, the oldest first."""
    return [
        ReservedSeat(run_id=row.run_id, attempt=row.attempt, node=row.node, endpoint=row.endpoint,
                     num_hosts=row.num_hosts, device=row.device)
        for row in connection.execute(_RESERVED, {"worker_id": worker_id})
    ]  # fmt: skip


def take_seat(
    connection: Connection, seat: ReservedSeat, devices: Sequence[str], now: datetime, lease_s: float
) -> bool:
    """Begin this part of the run; False when the attempt was over meanwhile."""
    taken = (
        update(table_of(Seat))
        .where(
            _seat.run_id == seat.run_id, _seat.attempt == seat.attempt, _seat.node == seat.node,
            _seat.state == "reserved",
        )
        .values(state="taken", taken_at=now, devices=list(devices), lease_expires_at=now + timedelta(seconds=lease_s))
    )  # fmt: skip
    return connection.execute(taken).rowcount == 1


def renew_reserved(session: Session, worker_id: int, lease_s: float, now: datetime) -> None:
    """Prolong the seats that wait for this worker, which lives: its devices may be busy for a moment after a run's end.

    Not for longer than `TAKE_S` after they were reserved, however long it goes on.
    """
    in_time = _seat.reserved_at > now - timedelta(seconds=TAKE_S)
    session.connection().execute(
        update(table_of(Seat))
        .where(_seat.worker_id == worker_id, _seat.state == "reserved", in_time)
        .values(lease_expires_at=now + timedelta(seconds=lease_s))
    )


def renew_seat(session: Session, worker_id: int, run_id: int, attempt: int, expires_at: datetime) -> bool:
    """Prolong the lease of this worker's seat; False when it is no longer its own, or the attempt is over."""
    goes_on = exists().where(_OF_THE_ATTEMPT).correlate(table_of(Seat))
    renewed = (
        update(table_of(Seat))
        .where(
            _seat.run_id == run_id, _seat.attempt == attempt, _seat.worker_id == worker_id, _seat.state == "taken",
            goes_on,
        )
        .values(lease_expires_at=expires_at)
    )  # fmt: skip
    return session.connection().execute(renewed).rowcount == 1


def end_seat(
    session: Session,
    run_id: int,
    attempt: int,
    node: int,
    outcome: SeatOutcome,
    reason: dict[str, Any] | None,
    exit_code: int | None,
    log: str,
    now: datetime | None = None,
) -> None:
    """Say how this part ended; node 0 draws the conclusion for the run. Raises `LeaseLost` if the attempt is over."""
    ended = (
        update(table_of(Seat))
        .where(_seat.run_id == run_id, _seat.attempt == attempt, _seat.node == node, _seat.state == "taken")
        .values(state="ended", ended_at=now or store_now(session), outcome=outcome, reason=reason,
                exit_code=exit_code, log=log)
    )  # fmt: skip
    if session.connection().execute(ended).rowcount != 1:
        raise LeaseLost(f"run {run_id} is over for host {node + 1} of attempt {attempt}: nothing is written for it")


def close_seats(session: Session, run_id: int, attempt: int, outcome: str, now: datetime) -> None:
    """The attempt is over: its first seat ends as it did, and those that are still open are released."""
    of_attempt = (_seat.run_id == run_id, _seat.attempt == attempt, _seat.state != "ended")
    connection = session.connection()
    for node, how in ((_seat.node == 0, outcome), (_seat.node > 0, "released")):
        connection.execute(
            update(table_of(Seat)).where(*of_attempt, node).values(state="ended", ended_at=now, outcome=how)
        )


def over_of(session: Session, attempts: Collection[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Those of these attempts, pairs of run id and number, that no longer run."""
    running = select(_run.id, _run.attempt).where(
        tuple_(_run.id, _run.attempt).in_(list(attempts)), _run.state == "running"
    )
    return frozenset(attempts) - {(run_id, attempt) for run_id, attempt in session.connection().execute(running)}


def broken_of(session: Session, attempts: Collection[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Those of these attempts of which another host has failed or was lost."""
    broken = select(_seat.run_id, _seat.attempt).where(
        tuple_(_seat.run_id, _seat.attempt).in_(list(attempts)), _seat.node > 0, _seat.outcome.in_(BROKEN)
    )
    return frozenset((run_id, attempt) for run_id, attempt in session.connection().execute(broken))


def seat_states(session: Session, run_id: int, attempt: int) -> list[SeatState]:
    """The seats of an attempt but the first."""
    now = store_now(session)
    rows = session.execute(
        select(Seat, Worker.name)
        .join(Worker, Worker.id == Seat.worker_id)
        .where(Seat.run_id == run_id, Seat.attempt == attempt, Seat.node > 0)
        .order_by(Seat.node)
    )
    return [
        SeatState(node=seat.node, worker=name, outcome=seat.outcome, reason=seat.reason, is_open=seat.state != "ended",
                  is_silent=seat.state != "ended" and seat.lease_expires_at < now)
        for seat, name in rows
    ]  # fmt: skip


def seats_of(session: Session, run_ids: Collection[int]) -> Mapping[int, list[dict[str, Any]]]:
    """Every seat of these runs as REST and pages show it, by run: attempt by attempt, host by host."""
    found: dict[int, list[dict[str, Any]]] = {}
    rows = session.execute(
        select(Seat, Worker.name)
        .join(Worker, Worker.id == Seat.worker_id)
        .where(Seat.run_id.in_(run_ids))
        .order_by(Seat.attempt, Seat.node)
    )
    for seat, name in rows:
        found.setdefault(seat.run_id, []).append(
            {
                "attempt": seat.attempt, "node": seat.node, "worker": name, "host": seat.machine,
                "state": seat.state, "devices": seat.devices, "endpoint": seat.endpoint,
                "taken_at": seat.taken_at, "ended_at": seat.ended_at, "outcome": seat.outcome,
                "reason": seat.reason, "exit_code": seat.exit_code, "log": seat.log,
            }
        )  # fmt: skip
    return found
