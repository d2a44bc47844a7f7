"""Taking the next queued run that fits the devices a worker has free."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from server.db.tables import Attempt, Experiment, Run, Worker
from server.queue.clock import store_now


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """One attempt of one run, leased to a worker. ``config`` is the row's, see `server.db.tables.Run`."""

    run_id: int
    experiment_id: int
    attempt: int
    kind: str
    role: str
    recipe: dict[str, Any]
    seed: int
    steps: int
    config: dict[str, Any]


def claim(
    session: Session, worker_id: int, devices_free: Collection[str], lease_s: float, now: datetime | None = None
) -> ClaimedRun | None:
    """Take the best queued run: highest priority first, then the oldest; None when nothing fits.

    ``devices_free`` holds device kinds or names (``cpu``, ``cuda``, ``cuda:0``); a run on device ``auto`` fits any.
    Two workers never get the same run: the row is locked (PostgreSQL skips rows others hold) and its state is checked
    again in the update.
    """
    now = now or store_now(session)
    wanted = sorted({*devices_free, *(name.partition(":")[0] for name in devices_free)})
    if not wanted:
        return None
    worker_name = session.execute(select(Worker.name).where(Worker.id == worker_id)).scalar_one()
    device = func.coalesce(Run.config["device"].as_string(), "cpu")
    candidate = (
        select(Run.id)
        .where(Run.state == "queued", device.in_([*wanted, "auto"]))
        .order_by(Run.priority.desc(), Run.created_at, Run.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    run_id = session.execute(candidate).scalar_one_or_none()
    if run_id is None or not _lease(session, run_id, worker_id, now, lease_s):
        return None
    run = session.get_one(Run, run_id, populate_existing=True)
    session.add(Attempt(run_id=run.id, number=run.attempt, worker_name=worker_name, started_at=now))
    session.execute(
        update(Experiment)
        .where(Experiment.id == run.experiment_id, Experiment.state == "queued")
        .values(state="running")
    )
    session.flush()
    return ClaimedRun(
        run_id=run.id, experiment_id=run.experiment_id, attempt=run.attempt, kind=run.kind, role=run.role,
        recipe=run.recipe, seed=run.seed, steps=run.steps, config=run.config,
    )  # fmt: skip


def _lease(session: Session, run_id: int, worker_id: int, now: datetime, lease_s: float) -> bool:
    """Begin the next attempt under a lease; False when the run was taken meanwhile. It starts from step 1."""
    taken = (
        update(Run)
        .where(Run.id == run_id, Run.state == "queued")
        .values(
            state="running", attempt=Run.attempt + 1, worker_id=worker_id, started_at=now, ended_at=None,
            lease_expires_at=now + timedelta(seconds=lease_s), step=0, reason=None, numerics=None, environment=None,
            result=None,
        )
        .returning(Run.id)
    )  # fmt: skip
    return session.execute(taken).scalar_one_or_none() is not None
