"""Figures of the team's queue and workers in the Prometheus text format."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeVar

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.checkpoints.queries import space_of
from server.db.tables import Attempt, Delivery, Experiment, Run, Seat
from server.workers.queries import live_workers

RUN_STATES = ("queued", "running", "paused", "completed", "failed", "cancelled")
SEAT_STATES = ("reserved", "taken")
OUTCOMES = ("completed", "failed", "cancelled", "paused", "lost", None)  # None: it has not ended
Text = TypeVar("Text", str, str | None)
EXPERIMENT_STATES = ("queued", "running", "ended", "cancelled")


def exposition(session: Session, lease_s: float, version: str) -> str:
    """The whole text: counts of runs and experiments by state, age of the queue's head, live workers and slots."""
    runs = _counts(session, Run.state)
    experiments = _counts(session, Experiment.state)
    workers = live_workers(session, lease_s)
    oldest = session.scalar(select(func.min(Run.created_at)).where(Run.state == "queued"))
    waiting_s = (datetime.now(UTC) - oldest).total_seconds() if oldest is not None else 0.0
    by_device = _counts(session, Run.device, Run.state == "queued")
    attempts = _counts(session, Attempt.outcome)
    seats = _counts(session, Seat.state, Seat.state.in_(SEAT_STATES))
    kept = space_of(session)
    since = datetime.now(UTC) - timedelta(hours=1)
    waits = _waits_s(session, since)
    late = session.scalar(select(func.count()).where(Run.state == "running", Run.lease_expires_at < datetime.now(UTC)))
    undelivered = session.scalar(select(func.count()).where(Delivery.due_at.is_not(None)))
    lines = [
        *_gauge("ampboard_info", "Version of the server.", [(f'version="{version}"', 1)]),
        *_gauge("ampboard_runs", "Runs by state.", [(f'state="{state}"', runs.get(state, 0)) for state in RUN_STATES]),
        *_gauge(
            "ampboard_experiments",
            "Experiments by state.",
            [(f'state="{state}"', experiments.get(state, 0)) for state in EXPERIMENT_STATES],
        ),
        *_gauge("ampboard_queue_oldest_seconds", "Age of the oldest queued run.", [("", waiting_s)]),
        *_gauge(
            "ampboard_queue_runs",
            "Queued runs by the device they ask for.",
            [(f'device="{device}"', count) for device, count in sorted(by_device.items())],
        ),
        *_gauge(
            "ampboard_attempts",
            "Attempts begun, which is claims made, by how they ended; running ones have not.",
            [(f'outcome="{outcome or "running"}"', attempts.get(outcome, 0)) for outcome in OUTCOMES],
        ),
        *_gauge("ampboard_claims_hour", "Runs first claimed within the last hour.", [("", len(waits))]),
        *_gauge(
            "ampboard_queue_wait_seconds",
            "How long runs first claimed within the last hour had waited.",
            [(f'quantile="{q}"', waits[min(len(waits) - 1, int(q * len(waits)))]) for q in (0.5, 0.95) if waits],
        ),
        *_gauge("ampboard_leases_expired", "Running runs whose worker has not renewed its lease.", [("", late or 0)]),
        *_gauge(
            "ampboard_seats",
            "Parts of runs on several hosts: reserved for a worker, or at work on one.",
            [(f'state="{state}"', seats.get(state, 0)) for state in SEAT_STATES],
        ),
        *_gauge("ampboard_kept_checkpoints", "Checkpoints that stay after their run's end.", [("", kept.num)]),
        *_gauge("ampboard_kept_checkpoint_bytes", "Size of these files, once each.", [("", kept.num_bytes)]),
        *_gauge("ampboard_webhooks_due", "Deliveries that wait for a try.", [("", undelivered or 0)]),
        *_gauge("ampboard_workers_live", "Workers that answered within a lease.", [("", len(workers))]),
        *_gauge("ampboard_worker_slots", "Slots of live workers.", [("", sum(w.slots for w in workers))]),
    ]
    return "\n".join(lines) + "\n"


def _waits_s(session: Session, since: datetime) -> list[float]:
    """Seconds in the queue, ascending, of runs whose first attempt began since then."""
    rows = session.execute(
        select(Run.created_at, Attempt.started_at)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(Attempt.number == 1, Attempt.started_at > since)
    )
    return sorted((started_at - created_at).total_seconds() for created_at, started_at in rows)


def _counts(
    session: Session, column: InstrumentedAttribute[Text], condition: ColumnElement[bool] | None = None
) -> dict[Text, int]:
    query = select(column, func.count()).group_by(column)
    rows = session.execute(query if condition is None else query.where(condition))
    return {state: count for state, count in rows}  # noqa: C416 - rows are typed only when unpacked


def _gauge(name: str, text: str, samples: list[tuple[str, float]]) -> list[str]:
    head = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    return head + [f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}" for labels, value in samples]
