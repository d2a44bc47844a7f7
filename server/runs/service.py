"""Cancelling one run."""

from __future__ import annotations

from sqlalchemy.orm import Session, object_session

from server.access import Principal
from server.audit.service import record
from server.db.tables import Experiment
from server.errors import Conflict, Forbidden
from server.projects.members import role_in
from server.queue.cancel import cancel_run
from server.queue.finish import OPEN
from server.runs.queries import find_run


def check_owner(principal: Principal, experiment: Experiment, action: str) -> None:
    """Changing an experiment is its owner's right, and an admin's of its project or of the team. Raises `Forbidden`."""
    if experiment.owner_id == principal.user_id or principal.may("admin"):
        return
    session = object_session(experiment)
    assert session is not None, "an experiment is changed within a transaction"
    if role_in(session, principal, experiment.project_id) != "admin":
        raise Forbidden(
            f"experiment {experiment.id} belongs to {experiment.owner.name}: only they or an admin may {action} it; "
            "clone it to run your own"
        )


def cancel(session: Session, run_id: int, principal: Principal) -> str:
    """Cancel a run and return its state. Raises `NotFound`, `Forbidden`, or `Conflict` when it has ended."""
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "cancel runs of")
    if run.state not in OPEN:
        raise Conflict(f"run {run_id} has ended ({run.state}): there is nothing to cancel")
    state = cancel_run(session, run_id, principal.name)
    record(session, principal.user_id, "run.cancel", f"run/{run_id}", experiment_id=run.experiment_id)
    return state
