"""Figures of the team's queue and workers in the Prometheus text format."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from server.db.tables import Experiment, Run
from server.workers.queries import live_workers

RUN_STATES = ("queued", "running", "paused", "completed", "failed", "cancelled")
EXPERIMENT_STATES = ("queued", "running", "ended", "cancelled")


def exposition(session: Session, lease_s: float, version: str) -> str:
    """The whole text: counts of runs and experiments by state, age of the queue's head, live workers and slots."""
    runs = _counts(session, Run.state)
    experiments = _counts(session, Experiment.state)
    workers = live_workers(session, lease_s)
    oldest = session.scalar(select(func.min(Run.created_at)).where(Run.state == "queued"))
    waiting_s = (datetime.now(UTC) - oldest).total_seconds() if oldest is not None else 0.0
    lines = [
        *_gauge("ampboard_info", "Version of the server.", [(f'version="{version}"', 1)]),
        *_gauge("ampboard_runs", "Runs by state.", [(f'state="{state}"', runs.get(state, 0)) for state in RUN_STATES]),
        *_gauge(
            "ampboard_experiments",
            "Experiments by state.",
            [(f'state="{state}"', experiments.get(state, 0)) for state in EXPERIMENT_STATES],
        ),
        *_gauge("ampboard_queue_oldest_seconds", "Age of the oldest queued run.", [("", waiting_s)]),
        *_gauge("ampboard_workers_live", "Workers that answered within a lease.", [("", len(workers))]),
        *_gauge("ampboard_worker_slots", "Slots of live workers.", [("", sum(w.slots for w in workers))]),
    ]
    return "\n".join(lines) + "\n"


def _counts(session: Session, column: InstrumentedAttribute[str]) -> dict[str, int]:
    rows = session.execute(select(column, func.count()).group_by(column))
    return {state: count for state, count in rows}  # noqa: C416 - rows are typed only when unpacked


def _gauge(name: str, text: str, samples: list[tuple[str, float]]) -> list[str]:
    head = [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
    return head + [f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}" for labels, value in samples]
