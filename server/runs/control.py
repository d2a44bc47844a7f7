"""Pausing, resuming and putting forward: one run, or every open run of an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.checkpoints.service import refuse_without_origin
from server.db.tables import Experiment, Run
from server.errors import Conflict
from server.queue.cancel import retry_run
from server.queue.finish import OPEN
from server.queue.pause import pause_run, resume_run
from server.runs.queries import find_run
from server.runs.service import check_owner


def pause(session: Session, run_id: int, principal: Principal) -> str:
    """Pause a run and return its state. Raises `NotFound`, `Forbidden`, or `Conflict` when it has ended or pauses."""
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "pause runs of")
    if run.device == "outside":
        raise Conflict(f"run {run_id} is tracked from outside: pause it where it runs")
    if run.state not in ("queued", "running"):
        raise Conflict(f"run {run_id} is {run.state}: only a queued or running one can be paused")
    if run.cancel_requested_at is not None:
        raise Conflict(f"run {run_id} is being cancelled: there is nothing to pause")
    state = pause_run(session, run_id)
    record(session, principal.user_id, "run.pause", f"run/{run_id}", experiment_id=run.experiment_id)
    return state


def resume(session: Session, run_id: int, principal: Principal) -> None:
    """Queue a paused run again. Raises `NotFound`, `Forbidden`, or `Conflict` when it is not paused."""
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "resume runs of")
    if not resume_run(session, run_id):
        wait = " yet: it stops after its next checkpoint" if run.pause_requested_at is not None else ""
        raise Conflict(f"run {run_id} is {run.state}, and not paused{wait}")
    record(session, principal.user_id, "run.resume", f"run/{run_id}", experiment_id=run.experiment_id)


def set_priority(session: Session, run_id: int, priority: int, principal: Principal) -> None:
    """Change a run's priority. Raises `NotFound`, `Forbidden`, or `Conflict` when it has ended."""
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "change runs of")
    if run.state not in OPEN:
        raise Conflict(f"run {run_id} has ended ({run.state}): its priority decides nothing any more")
    _put_forward(session, [run_id], priority)
    record(session, principal.user_id, "run.priority", f"run/{run_id}", priority=priority)


def retry(session: Session, run_id: int, principal: Principal) -> None:
    """Queue a failed or cancelled run again. Raises `NotFound`, `Forbidden`, or `Conflict` when there is no need."""
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "retry runs of")
    if run.device == "outside":
        raise Conflict(f"run {run_id} was tracked from outside: run it again where it ran")
    refuse_without_origin(session, run.experiment, run)
    if not retry_run(session, run_id):
        raise Conflict(f"run {run_id} is {run.state}: only a failed or cancelled one can be retried")
    record(session, principal.user_id, "run.retry", f"run/{run_id}", experiment_id=run.experiment_id)


def pause_all(session: Session, experiment: Experiment, principal: Principal) -> int:
    """Pause every queued and running run of an experiment; return how many. Raises `Forbidden`, `Conflict`."""
    check_owner(principal, experiment, "pause")
    if experiment.plan.get("device") == "outside":
        raise Conflict(f"experiment {experiment.id} is tracked from outside: pause its runs where they run")
    ids = _ids(session, experiment.id, ("queued", "running"))
    if not ids:
        raise Conflict(f"experiment {experiment.id} has no queued or running run: there is nothing to pause")
    for run_id in ids:
        pause_run(session, run_id)
    record(session, principal.user_id, "experiment.pause", f"experiment/{experiment.id}", runs=len(ids))
    return len(ids)


def resume_all(session: Session, experiment: Experiment, principal: Principal) -> int:
    """Queue every paused run of an experiment again; return how many. Raises `Forbidden`, `Conflict`."""
    check_owner(principal, experiment, "resume")
    num_runs = sum(resume_run(session, run_id) for run_id in _ids(session, experiment.id, ("paused",)))
    if num_runs == 0:
        raise Conflict(f"experiment {experiment.id} has no paused run: there is nothing to resume")
    record(session, principal.user_id, "experiment.resume", f"experiment/{experiment.id}", runs=num_runs)
    return num_runs


def set_priority_of_all(session: Session, experiment: Experiment, priority: int, principal: Principal) -> int:
    """Change the priority of every open run of an experiment; return how many. Raises `Forbidden`, `Conflict`."""
    check_owner(principal, experiment, "change")
    ids = _ids(session, experiment.id, OPEN)
    if not ids:
        raise Conflict(f"experiment {experiment.id} has ended: its priority decides nothing any more")
    _put_forward(session, ids, priority)
    record(session, principal.user_id, "experiment.priority", f"experiment/{experiment.id}", priority=priority)
    return len(ids)


def _ids(session: Session, experiment_id: int, states: Sequence[str]) -> Sequence[int]:
    query = select(Run.id).where(Run.experiment_id == experiment_id, Run.state.in_(states)).order_by(Run.id)
    return session.scalars(query).all()


def _put_forward(session: Session, run_ids: Sequence[int], priority: int) -> None:
    """Locked one after the other in the order of their ids, as everything here locks runs."""
    for run_id in run_ids:
        session.get_one(Run, run_id, with_for_update=True, populate_existing=True).priority = priority
    session.flush()
