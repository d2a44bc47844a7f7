"""Workers over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from server.access import Principal, admin, viewer
from server.broker.publish import ring
from server.state import DatabaseOf, SettingsOf
from server.workers import service
from server.workers.queries import list_workers, readings_of, worker_json

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
    node: int = Field(description="Which part of a run on several hosts, from 0; 0 as well for a run on one.")
    num_hosts: int


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
    draining: bool = Field(description="It finishes what it runs, and takes no more until it is undrained.")
    labels: list[str]
    clock_skew_s: float | None = Field(description="Its clock less the store's, in seconds, at its last heartbeat.")
    problem: str | None = Field(description="Why it takes no runs although it lives.")
    readings: dict[str, dict[str, Any]] = Field(description="How each device was in the last minute, by device.")
    started_at: datetime
    heartbeat_at: datetime
    runs: list[WorkerRun]


class ReadingOut(BaseModel):
    """A device at one moment: utilisation, memory, power, temperature, clock, and why it is slowed, where it tells."""

    device: str
    at: datetime
    values: dict[str, Any]


class ReadingList(BaseModel):
    items: list[ReadingOut]
    next_cursor: str | None = None


class WorkerList(BaseModel):
    items: list[WorkerOut]
    next_cursor: str | None = None


@router.get("/workers")
def show_workers(database: DatabaseOf, settings: SettingsOf) -> WorkerList:
    """Every worker ever seen, live ones first, with the runs it holds now."""
    with database.read() as session:
        return WorkerList.model_validate({"items": list_workers(session, settings.lease_s)})


@router.get("/workers/{worker_id}/readings")
def show_readings(
    worker_id: int, database: DatabaseOf, device: Annotated[str | None, Query(max_length=40)] = None
) -> ReadingList:
    """The last hour of a worker's devices, every ten seconds: utilisation, memory, power, temperature, throttling."""
    with database.read() as session:
        return ReadingList.model_validate({"items": readings_of(session, worker_id, device)})


@router.post("/workers/{worker_id}/drain")
def drain_worker(
    worker_id: int, principal: Annotated[Principal, Depends(admin)], database: DatabaseOf, settings: SettingsOf
) -> WorkerOut:
    """Let a worker finish what it runs and take no more, also after a restart, until it is undrained."""
    with database.write() as session:
        service.set_draining(session, worker_id, True, principal)
        return WorkerOut.model_validate(worker_json(session, worker_id, settings.lease_s))


@router.post("/workers/{worker_id}/undrain")
def undrain_worker(
    worker_id: int, principal: Annotated[Principal, Depends(admin)], database: DatabaseOf, settings: SettingsOf
) -> WorkerOut:
    """Let a drained worker take runs again."""
    with database.write() as session:
        service.set_draining(session, worker_id, False, principal)
        worker = WorkerOut.model_validate(worker_json(session, worker_id, settings.lease_s))
    ring(settings, worker.slots)
    return worker
