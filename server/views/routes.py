"""Saved views over REST. Whoever reads may save views of their own; sharing needs a submitter."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, status

from server.access import Principal, viewer
from server.state import DatabaseOf
from server.views import service
from server.views.schemas import Page, ViewIn, ViewList, ViewOut

router = APIRouter(prefix="/api/v1", tags=["views"])
Viewer = Annotated[Principal, Depends(viewer)]


@router.get("/views")
def list_views(principal: Viewer, database: DatabaseOf, page: Page | None = None) -> ViewList:
    """One's own views and those shared with the team, by name."""
    with database.read() as session:
        return ViewList.model_validate({"items": service.views_of(session, principal, page)})


@router.post("/views", status_code=status.HTTP_201_CREATED)
def save_view(body: ViewIn, principal: Viewer, database: DatabaseOf) -> ViewOut:
    """Save a view under a name; one's own of the same page and name is replaced."""
    with database.write() as session:
        view = service.save(session, body, principal)
        return ViewOut.model_validate(service.view_json(view, principal))


@router.delete("/views/{view_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_view(view_id: int, principal: Viewer, database: DatabaseOf) -> None:
    """Delete a view of one's own; an admin also a shared one."""
    with database.write() as session:
        service.remove(session, view_id, principal)
