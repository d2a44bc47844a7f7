"""Workers over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from server.access import viewer
from server.state import DatabaseOf, SettingsOf
from server.workers.queries import list_workers

router = APIRouter(prefix="/api/v1", tags=["workers"], dependencies=[Depends(viewer)])


class WorkerRun(BaseModel):
    id: int
    experiment_id: int
    recipe_name: str
    seed: int
    kind: str
    step: int
    steps: int
    device: str | None


class WorkerOut(BaseModel):
    """One worker process. ``state``: online, draining, or offline when it was silent for longer than a lease."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    slots: int
    devices: list[dict[str, Any]]
    state: str
    started_at: datetime
    heartbeat_at: datetime
    runs: list[WorkerRun]


class WorkerList(BaseModel):
    items: list[WorkerOut]
    next_cursor: str | None = None


@router.get("/workers")
def show_workers(database: DatabaseOf, settings: SettingsOf) -> WorkerList:
    """Every worker ever seen, live ones first, with the runs it holds now."""
    with database.read() as session:
        return WorkerList.model_validate({"items": list_workers(session, settings.lease_s)})
