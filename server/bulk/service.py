"""The rules of bulk actions: each row on its own, inside the caller's transaction; the caller rings after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from server.access import Principal
from server.audit.service import record
from server.bulk.schemas import ActionIn, ActionOut, Refusal
from server.checkpoints.service import refuse_without_origin
from server.db.tables import Experiment, Run
from server.errors import GONE, Conflict, RequestError
from server.experiments import service as experiments
from server.experiments.queries import find_experiment
from server.queue.cancel import retry_run
from server.queue.clock import store_now
from server.runs import delete
from server.runs import service as runs
from server.runs.queries import find_run
from server.runs.service import check_owner

MAX_TAGS = 20
Change = Callable[[Session, int, Principal], Any]


def on_experiments(session: Session, given: ActionIn, principal: Principal, undo_s: float) -> ActionOut:
    """Do it to every experiment that it can be done to."""
    changes: dict[str, Change] = {
        "cancel": experiments.cancel,
        "retry": experiments.retry,
        "delete": delete.delete_experiment,
        "restore": delete.restore_experiment,
    }
    return _each(session, given, principal, undo_s, changes.get(given.action) or _marking(given, _experiment))


def on_runs(session: Session, given: ActionIn, principal: Principal, undo_s: float) -> ActionOut:
    """Do it to every run that it can be done to."""
    changes: dict[str, Change] = {
        "cancel": runs.cancel,
        "retry": _retry_run,
        "delete": delete.delete_run,
        "restore": delete.restore_run,
    }
    return _each(session, given, principal, undo_s, changes.get(given.action) or _marking(given, _run))


def _each(session: Session, given: ActionIn, principal: Principal, undo_s: float, change: Change) -> ActionOut:
    done, refused = list[int](), list[Refusal]()
    for row_id in dict.fromkeys(given.ids):
        try:
            with session.begin_nested():
                change(session, row_id, principal)
            done.append(row_id)
        except RequestError as error:
            refused.append(Refusal(id=row_id, reason=str(error)))
        except NoResultFound:  # PostgreSQL looks again at a row that it waited for
            refused.append(Refusal(id=row_id, reason=GONE))
    until = store_now(session) + timedelta(seconds=undo_s) if given.action == "delete" and done else None
    return ActionOut(action=given.action, done=done, refused=refused, undo_until=until)


def _retry_run(session: Session, run_id: int, principal: Principal) -> None:
    run = find_run(session, run_id)
    check_owner(principal, run.experiment, "retry runs of")
    if run.experiment.plan.get("device") == "outside":
        raise Conflict(f"run {run_id} was tracked from outside: run it again where it ran")
    refuse_without_origin(session, run.experiment, run)
    if not retry_run(session, run_id):
        raise Conflict(f"run {run_id} is {run.state}: only failed and cancelled runs are retried")
    record(session, principal.user_id, "run.retry", f"run/{run_id}", experiment_id=run.experiment_id)


def _experiment(session: Session, row_id: int) -> tuple[Experiment, Experiment, str]:
    found = find_experiment(session, row_id)
    return found, found, "experiment"


def _run(session: Session, row_id: int) -> tuple[Run, Experiment, str]:
    found = find_run(session, row_id)
    return found, found.experiment, "run"


def _marking(given: ActionIn, find: Callable[[Session, int], tuple[Experiment | Run, Experiment, str]]) -> Change:
    """The change of a mark: tags, or whether it is archived. Doing it twice changes nothing, and is no error."""

    def change(session: Session, row_id: int, principal: Principal) -> None:
        row, experiment, noun = find(session, row_id)
        check_owner(principal, experiment, given.action)
        if _mark(session, row, given):
            record(session, principal.user_id, f"{noun}.{given.action}", f"{noun}/{row_id}", **_detail(given))

    return change


def _detail(given: ActionIn) -> dict[str, Any]:
    return {"tag": given.tag} if given.tag is not None else {}


def _mark(session: Session, row: Experiment | Run, given: ActionIn) -> bool:
    """Whether the row is another now. Raises `Conflict` for a tag too many."""
    before = (list(row.tags), row.archived_at)
    if given.action == "tag" and given.tag not in row.tags:
        if len(row.tags) >= MAX_TAGS:
            raise Conflict(f"it has {len(row.tags)} tags and {MAX_TAGS} are the most: remove one first")
        row.tags = [*row.tags, given.tag]
    elif given.action == "untag":
        row.tags = [tag for tag in row.tags if tag != given.tag]
    elif given.action == "archive":
        row.archived_at = row.archived_at or store_now(session)
    elif given.action == "unarchive":
        row.archived_at = None
    session.flush()
    return before != (list(row.tags), row.archived_at)
