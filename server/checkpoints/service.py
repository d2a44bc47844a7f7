"""The rules of kept checkpoints. Every function works inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.checkpoints.queries import hold_kept, kept_of, open_forks
from server.db.tables import Checkpoint, Experiment, Run
from server.errors import Conflict
from server.queue.cancel import RETRIED
from server.runs.queries import find_run
from server.runs.service import check_owner


def kept_json(session: Session, run_id: int) -> dict[str, Any]:
    """The kept checkpoints of a run. Raises `NotFound`."""
    find_run(session, run_id)
    kept = kept_of(session, run_id)
    return {
        "items": [
            {
                "step": one.step,
                "name": one.name,
                "num_bytes": one.num_bytes,
                "worker": one.worker_name,
                "is_shared": one.is_shared,
                "created_at": one.created_at,
            }
            for one in kept
        ],
        "num_bytes": sum(one.num_bytes for one in kept),
        "needed_by": open_forks(session, [run_id]).get(run_id, []),
    }


def drop_kept(session: Session, run_id: int, principal: Principal) -> int:
    """Forget the kept checkpoints of a run; workers delete the files within a minute. Returns how many those were.

    Raises `NotFound`, `Forbidden`, and `Conflict` while a fork needs them, the run is at work, or there are none.
    """
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "drop checkpoints of")
    session.execute(select(Run.id).where(Run.id == run_id).with_for_update())  # after a fork that is being submitted
    refuse_needed(session, [run_id])
    if run.state in ("queued", "running", "paused"):
        raise Conflict(f"run {run_id} is {run.state}: its checkpoints can be dropped once it has ended")
    num = len(session.scalars(delete(Checkpoint).where(Checkpoint.run_id == run_id).returning(Checkpoint.id)).all())
    if not num:
        raise Conflict(f"run {run_id} has no kept checkpoints: there is nothing to drop")
    record(session, principal.user_id, "checkpoints.drop", f"run/{run_id}", number=num)
    return num


def refuse_needed(session: Session, run_ids: Sequence[int]) -> None:
    """Raises `Conflict` if an experiment that has not ended begins at a checkpoint of one of these runs."""
    needed = open_forks(session, run_ids)
    if needed:
        run_id, by = next(iter(sorted(needed.items())))
        raise Conflict(
            f"run {run_id} and its checkpoints stay: experiment {by[0]} begins at one of them and has not ended (or an "
            "analysis in it); cancel that, or wait for its end"
        )


def refuse_without_origin(session: Session, experiment: Experiment, run: Run | None = None) -> None:
    """Hold the checkpoints at which the runs to be retried begin: ``run``, or all of the experiment that can be.

    Raises `Conflict` if one is not there any more.
    """
    fork = experiment.plan.get("fork")
    if fork and not hold_kept(session, fork["run"], fork["name"]):
        raise Conflict(
            f"experiment {experiment.id} begins after step {fork['step']} of run {fork['run']}, whose checkpoint is "
            "not kept any more: its runs cannot be run again; fork from another checkpoint"
        )
    ended = select(Run).where(Run.experiment_id == experiment.id, Run.state.in_(RETRIED), Run.role == "analysis")
    for one in session.scalars(ended.order_by(Run.id)).all() if run is None else [run]:
        own = one.config.get("fork")  # an analysis may begin elsewhere than the plan
        if own and not hold_kept(session, own["run"], own["name"]):
            raise Conflict(
                f"run {one.id} begins after step {own['step']} of run {own['run']}, whose checkpoint is not kept any "
                "more: it cannot be run again"
                + ("; retry the other runs one by one, or delete that one" if run is None else "")
            )
