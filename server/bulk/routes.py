"""Bulk actions over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from server.access import Principal, submitter
from server.broker.publish import ring
from server.bulk import service
from server.bulk.schemas import ActionIn, ActionOut
from server.db.engine import Database
from server.settings import Settings
from server.state import DatabaseOf, SettingsOf

router = APIRouter(prefix="/api/v1", tags=["actions"])
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
    """One transaction for all of them; workers are rung when there is work again."""
    work = service.on_experiments if noun == "experiments" else service.on_runs
    with database.write() as session:
        told = work(session, body, principal, settings.undo_s)
    if body.action == "retry" and told.done:
        ring(settings, len(told.done))
    return told
