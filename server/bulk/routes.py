"""Bulk actions over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from server.access import Principal, submitter
from server.broker.publish import ring
from server.bulk import service
from server.bulk.schemas import ActionIn, ActionOut, Refusal
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.settings import Settings
from server.state import DatabaseOf, SettingsOf

router = APIRouter(prefix="/api/v1", tags=["actions"])
AT_ONCE = {"experiments": 1, "runs": 50}  # an experiment has hundreds of runs
Submitter = Annotated[Principal, Depends(submitter)]


@router.post("/experiments/actions")
def act_on_experiments(body: ActionIn, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> ActionOut:
    """Cancel, retry, tag, archive, delete or restore several experiments; who may is told for each."""
    return act(database, settings, "experiments", body, principal)


@router.post("/runs/actions")
def act_on_runs(body: ActionIn, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> ActionOut:
    """Cancel, retry, tag, archive, delete or restore several runs; who may is told for each."""
    return act(database, settings, "runs", body, principal)


def act(database: Database, settings: Settings, noun: str, body: ActionIn, principal: Principal) -> ActionOut:
    """A few rows in each transaction, so that workers write in between; they are rung when there is work again.

    Should the store go away meanwhile, what was not done by then is told as refused.
    """
    work = service.on_experiments if noun == "experiments" else service.on_runs
    ids, told = list(dict.fromkeys(body.ids)), ActionOut(action=body.action, done=[], refused=[])
    for start in range(0, len(ids), AT_ONCE[noun]):
        given = body.model_copy(update={"ids": ids[start : start + AT_ONCE[noun]]})
        try:
            with database.write() as session:
                part = work(session, given, principal, settings.undo_s)
        except StoreUnavailable as error:
            if not told.done:
                raise
            told.refused += [Refusal(id=row_id, reason=str(error)) for row_id in ids[start:]]
            break
        told.done += part.done
        told.refused += part.refused
        told.undo_until = told.undo_until or part.undo_until
    if body.action == "retry" and told.done:
        ring(settings, len(told.done))
    return told
