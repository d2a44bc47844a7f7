"""Workloads over REST."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from server.access import viewer
from server.errors import NotFound
from server.state import DatabaseOf
from server.workloads.queries import current_workloads, find_workload, workload_json

router = APIRouter(prefix="/api/v1", tags=["workloads"], dependencies=[Depends(viewer)])


class WorkloadOut(BaseModel):
    """One workload. ``error`` is set, and it cannot be submitted, when its file is broken."""

    name: str
    source_hash: str
    path: str
    title: str
    summary: str
    steps: int | None
    recipes: list[Any]
    primary: dict[str, Any] | None
    parameters: list[dict[str, Any]]
    error: str | None
    first_seen_at: datetime
    seen_at: datetime


class WorkloadList(BaseModel):
    items: list[WorkloadOut]
    next_cursor: str | None = None


@router.get("/workloads")
def list_workloads(database: DatabaseOf) -> WorkloadList:
    """What can be trained here, as the workers last found it; broken files are listed with their error."""
    with database.read() as session:
        return WorkloadList(items=[WorkloadOut(**workload_json(found)) for found in current_workloads(session)])


@router.get("/workloads/{name}")
def show_workload(name: str, database: DatabaseOf) -> WorkloadOut:
    """One workload with its typed parameters."""
    with database.read() as session:
        workload = find_workload(session, name)
        if workload is None:
            raise NotFound(f"workload {name[:80]!r} is unknown: GET /api/v1/workloads lists those the workers found")
        return WorkloadOut(**workload_json(workload))
