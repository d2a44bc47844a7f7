"""Taking the next queued run that fits the devices a worker has free."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from server.db.tables import Attempt, Experiment, Run, Worker, Workload
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
    workload_name: str
    source_hash: str


def claim(
    session: Session,
    worker_id: int,
    devices_free: Collection[str],
    lease_s: float,
    now: datetime | None = None,
    *,
    alone: bool = True,
) -> ClaimedRun | None:
    """Take the best queued run: highest priority first, then the oldest; None when nothing fits.

    ``devices_free`` holds the devices a run may ask for: kinds or names (``cpu``, ``cuda``, ``cuda:0``), and ``auto``
    when the worker would give such a run a device now. ``alone`` says that no other run computes on this host: a
    benchmark on a CPU is taken only then, and while it heads the queue nothing overtakes it here. Two workers never
    get the same run: the row is locked (PostgreSQL skips rows others hold) and its state is checked in the update.
    """
    now = now or store_now(session)
    worker_name = session.execute(select(Worker.name).where(Worker.id == worker_id)).scalar_one()
    device = func.coalesce(Run.config["device"].as_string(), "cpu")
    candidate = (
        select(Run.id, Run.kind, device)
        .where(Run.state == "queued", device.in_(sorted(devices_free)))
        .order_by(Run.priority.desc(), Run.created_at, Run.id)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    found = session.execute(candidate).one_or_none()
    if found is None:
        return None
    run_id, kind, device_wanted = found
    if kind == "benchmark" and not device_wanted.startswith("cuda") and not alone:
        return None
    if not _lease(session, run_id, worker_id, now, lease_s):
        return None
    run = session.get_one(Run, run_id, populate_existing=True)
    session.add(Attempt(run_id=run.id, number=run.attempt, worker_name=worker_name, started_at=now))
    session.execute(
        update(Experiment)
        .where(Experiment.id == run.experiment_id, Experiment.state == "queued")
        .values(state="running")
    )
    session.flush()
    return _claimed(session, run)


def _claimed(session: Session, run: Run) -> ClaimedRun:
    of_workload = select(Workload.name, Workload.source_hash).join(Experiment, Experiment.workload_id == Workload.id)
    name, source_hash = session.execute(of_workload.where(Experiment.id == run.experiment_id)).one()
    return ClaimedRun(
        run_id=run.id, experiment_id=run.experiment_id, attempt=run.attempt, kind=run.kind, role=run.role,
        recipe=run.recipe, seed=run.seed, steps=run.steps, config=run.config, workload_name=name,
        source_hash=source_hash,
    )  # fmt: skip


def _lease(session: Session, run_id: int, worker_id: int, now: datetime, lease_s: float) -> bool:
    """Begin the next attempt under a lease; False when the run was taken meanwhile. Its step counts anew."""
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
