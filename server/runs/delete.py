"""Deleting runs and experiments with everything they left: points, events, logs, artifacts, attempts."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from sqlalchemy import String, cast, delete, func, select
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.db.engine import Database
from server.db.tables import Experiment, Project, Run
from server.errors import Conflict
from server.experiments.queries import find_experiment
from server.queue.clock import store_now
from server.runs.queries import find_run
from server.runs.service import check_owner

KEEP_TAG = "keep"
_AT_ONCE = 20

logger = logging.getLogger(__name__)


def delete_run(session: Session, run_id: int, principal: Principal) -> None:
    """Delete a run that has ended. Its experiment stays, and so does a verdict that was given already.

    Raises `NotFound`, `Forbidden`, and `Conflict` while it is queued or running.
    """
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "delete runs of")
    _refuse_active(session, [Run.id == run_id], f"run {run_id}")
    session.execute(delete(Run).where(Run.id == run_id))
    record(session, principal.user_id, "run.delete", f"run/{run_id}", experiment_id=run.experiment_id)


def delete_experiment(session: Session, experiment_id: int, principal: Principal) -> int:
    """Delete an experiment that has ended, with its runs; return how many those were.

    Raises `NotFound`, `Forbidden`, and `Conflict` while one of its runs is queued or running.
    """
    experiment = find_experiment(session, experiment_id)
    check_owner(principal, experiment, "delete")
    _refuse_active(session, [Run.experiment_id == experiment_id], f"experiment {experiment_id}")
    num_runs = session.scalar(select(func.count()).where(Run.experiment_id == experiment_id)) or 0
    session.execute(delete(Experiment).where(Experiment.id == experiment_id))
    record(
        session, principal.user_id, "experiment.delete", f"experiment/{experiment_id}",
        name=experiment.name, runs=num_runs,
    )  # fmt: skip
    return num_runs


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
        if experiment is None or experiment.state not in ("ended", "cancelled"):
            return False  # retried meanwhile
        name = experiment.name
        session.execute(delete(Experiment).where(Experiment.id == experiment_id))
        record(session, None, "experiment.expire", f"experiment/{experiment_id}", name=name)
    logger.info("experiment %d was deleted: its project's retention is over", experiment_id)
    return True


def _refuse_active(session: Session, which: list[object], subject: str) -> None:
    """Lock the runs, so that none is retried meanwhile, and refuse while one is at work."""
    states = session.scalars(select(Run.state).where(*which).with_for_update()).all()  # type: ignore[arg-type]
    active = sorted({state for state in states if state in ("queued", "running")})
    if active:
        raise Conflict(f"{subject} is {' and '.join(active)}: cancel it first, and delete it once it has ended")
