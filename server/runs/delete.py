"""Deleting runs and experiments with everything they left: points, events, logs, artifacts, attempts.

What a person deletes disappears at once and can be restored for a while; the background work purges it then. What a
project's retention deletes is gone at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sqlalchemy import String, cast, delete, func, select, update
from sqlalchemy.orm import Session, joinedload

from server.access import Principal
from server.audit.service import record
from server.checkpoints.queries import open_forks
from server.checkpoints.service import refuse_needed
from server.db.deleted import WITH_DELETED
from server.db.engine import Database
from server.db.tables import Experiment, Project, Run
from server.errors import Conflict, NotFound
from server.experiments.queries import find_experiment
from server.notes.service import forget
from server.queue.clock import store_now
from server.queue.finish import OPEN
from server.runs.queries import find_run
from server.runs.service import check_owner

KEEP_TAG = "keep"
_AT_ONCE, _RUNS_AT_ONCE = 20, 200

logger = logging.getLogger(__name__)


def delete_run(session: Session, run_id: int, principal: Principal) -> None:
    """Delete a run that has ended. Its experiment stays, and so does a verdict that was given already.

    Raises `NotFound`, `Forbidden`, and `Conflict` while it is queued or running, or a fork needs its checkpoints.
    """
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "delete runs of")
    _refuse_active(session, [Run.id == run_id], f"run {run_id}")
    refuse_needed(session, [run_id])
    run.deleted_at = store_now(session)
    record(session, principal.user_id, "run.delete", f"run/{run_id}", experiment_id=run.experiment_id)


def delete_experiment(session: Session, experiment_id: int, principal: Principal) -> int:
    """Delete an experiment that has ended, with its runs; return how many those were.

    Raises `NotFound`, `Forbidden`, and `Conflict` while one of its runs is queued or running, or needed by a fork.
    """
    experiment = find_experiment(session, experiment_id)
    check_owner(principal, experiment, "delete")
    _refuse_active(session, [Run.experiment_id == experiment_id], f"experiment {experiment_id}")
    refuse_needed(session, _run_ids(session, experiment_id))
    num_runs = session.scalar(select(func.count(Run.id)).where(Run.experiment_id == experiment_id)) or 0
    experiment.deleted_at = now = store_now(session)
    session.execute(
        update(Run).where(Run.experiment_id == experiment_id, Run.deleted_at.is_(None)).values(deleted_at=now)
    )
    record(
        session, principal.user_id, "experiment.delete", f"experiment/{experiment_id}",
        name=experiment.name, runs=num_runs,
    )  # fmt: skip
    return num_runs


def restore_experiment(session: Session, experiment_id: int, principal: Principal) -> None:
    """Undo its deletion: it is back with the runs that went with it. Raises `NotFound`, `Forbidden`."""
    query = select(Experiment).where(Experiment.id == experiment_id, Experiment.deleted_at.is_not(None))
    experiment = session.scalars(query, execution_options=WITH_DELETED).one_or_none()
    if experiment is None:
        raise NotFound(f"no deleted experiment {experiment_id} can be restored: its time is over, or it is here")
    check_owner(principal, experiment, "restore")
    session.execute(
        update(Run)
        .where(Run.experiment_id == experiment_id, Run.deleted_at == experiment.deleted_at)
        .values(deleted_at=None)
    )
    experiment.deleted_at = None
    record(session, principal.user_id, "experiment.restore", f"experiment/{experiment_id}", name=experiment.name)


def restore_run(session: Session, run_id: int, principal: Principal) -> None:
    """Undo its deletion. Raises `NotFound`, `Forbidden`, and `Conflict` while its experiment is deleted itself."""
    query = select(Run).where(Run.id == run_id, Run.deleted_at.is_not(None)).options(joinedload(Run.experiment))
    run = session.scalars(query, execution_options=WITH_DELETED).one_or_none()
    if run is None:
        raise NotFound(f"no deleted run {run_id} is left to restore: its time is over, or it is here")
    check_owner(principal, run.experiment, "restore runs of")
    if run.experiment.deleted_at is not None:
        raise Conflict(f"experiment {run.experiment_id} of run {run_id} is deleted itself: restore that")
    run.deleted_at = None
    record(session, principal.user_id, "run.restore", f"run/{run_id}", experiment_id=run.experiment_id)


def purge_deleted(database: Database, undo_s: float) -> int:
    """Remove for good what was deleted longer ago than it can be restored; return how many rows those were.

    At most a few experiments go in one call, each in a transaction of its own.
    """
    with database.read() as session:
        before = store_now(session) - timedelta(seconds=undo_s)
        over: dict[type[Experiment | Run], Sequence[int]] = {
            table: session.scalars(
                select(table.id).where(table.deleted_at <= before).order_by(table.deleted_at).limit(at_once),
                execution_options=WITH_DELETED,
            ).all()
            for table, at_once in ((Experiment, _AT_ONCE), (Run, _RUNS_AT_ONCE))
        }
    num_purged = 0
    for table, ids in over.items():
        for row_id in ids:
            with database.write() as session:
                purge = delete(table).where(table.id == row_id, table.deleted_at <= before)
                members = _run_ids(session, row_id, WITH_DELETED) if table is Experiment else [row_id]
                purged = session.scalars(purge.returning(table.id)).all()
                if purged:
                    _forget_notes(session, purged if table is Experiment else [], members)
                num_purged += len(purged)
    return num_purged


def delete_expired(database: Database, default_days: int | None) -> list[int]:
    """Delete experiments that ended longer ago than their project keeps them; return their ids.

    A project's own ``retention_days`` comes before the default; None keeps for ever, and so does the tag ``keep``. At
    most a few are deleted in one call, each in a transaction of its own.
    """
    days = func.coalesce(Project.retention_days, default_days)
    with database.read() as session:
        now = store_now(session)
        rows = session.execute(
            select(Experiment.id, Experiment.ended_at, days)
            .join(Experiment.project)
            .where(
                Experiment.state.in_(("ended", "cancelled")),
                Experiment.ended_at.is_not(None),
                days.is_not(None),
                cast(Experiment.tags, String).not_like(f'%"{KEEP_TAG}"%'),
            )
            .order_by(Experiment.ended_at)
        ).all()
    expired = [found for found, ended_at, kept in rows if _is_over(ended_at, kept, now)][:_AT_ONCE]
    return [experiment_id for experiment_id in expired if _delete_expired(database, experiment_id)]


def _is_over(ended_at: datetime | None, days: int, now: datetime) -> bool:
    return ended_at is not None and ended_at < now - timedelta(days=days)


def _delete_expired(database: Database, experiment_id: int) -> bool:
    with database.write() as session:
        experiment = session.get(Experiment, experiment_id, with_for_update=True)
        if experiment is None or experiment.state not in ("ended", "cancelled") or KEEP_TAG in experiment.tags:
            return False  # retried or marked meanwhile
        if session.scalar(select(Run.id).where(Run.experiment_id == experiment_id, Run.state.in_(OPEN)).limit(1)):
            return False  # an analysis of it goes on
        ids = session.scalars(select(Run.id).where(Run.experiment_id == experiment_id).with_for_update()).all()
        if open_forks(session, ids):
            return False  # a fork begins at one of its checkpoints, and has not ended
        name = experiment.name
        _forget_notes(session, [experiment_id], _run_ids(session, experiment_id, WITH_DELETED))
        session.execute(delete(Experiment).where(Experiment.id == experiment_id))
        record(session, None, "experiment.expire", f"experiment/{experiment_id}", name=name)
    logger.info("experiment %d was deleted: its project's retention is over", experiment_id)
    return True


def _forget_notes(session: Session, experiments: Sequence[int], runs: Sequence[int]) -> None:
    forget(session, "experiment", experiments)
    forget(session, "run", runs)


def _run_ids(session: Session, experiment_id: int, options: Mapping[str, Any] = MappingProxyType({})) -> Sequence[int]:
    query = select(Run.id).where(Run.experiment_id == experiment_id)
    return session.scalars(query, execution_options=options).all()


def _refuse_active(session: Session, which: list[object], subject: str) -> None:
    """Lock the runs, so that none is retried meanwhile, and refuse while one is at work."""
    states = session.scalars(select(Run.state).where(*which).with_for_update()).all()  # type: ignore[arg-type]
    active = sorted({state for state in states if state in OPEN})
    if active:
        raise Conflict(f"{subject} is {' and '.join(active)}: cancel it first, and delete it once it has ended")
