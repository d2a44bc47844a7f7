"""Kept checkpoints over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, status

from server.access import Principal, submitter, viewer
from server.checkpoints import service
from server.checkpoints.schemas import CheckpointList
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["runs"])


@router.get("/runs/{run_id}/checkpoints", dependencies=[Depends(viewer)])
def list_checkpoints(run_id: int, database: DatabaseOf) -> CheckpointList:
    """The checkpoints of a run that stay after its end, with their size and where they lie."""
    with database.read() as session:
        return CheckpointList.model_validate(service.kept_json(session, run_id))


@router.delete("/runs/{run_id}/checkpoints", status_code=status.HTTP_204_NO_CONTENT)
def drop_checkpoints(
    run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf
) -> None:  # fmt: skip
    """Delete the kept checkpoints of a run that has ended, unless a fork still needs them."""
    with database.write() as session:
        service.drop_kept(session, run_id, principal)
