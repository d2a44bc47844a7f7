"""Notifications over REST: each caller's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, status

from server.access import Principal, viewer
from server.notifications import service
from server.notifications.digest import digest
from server.notifications.schemas import ChoicesIn, ChoicesOut, DigestOut, NotificationList
from server.queue.clock import store_now
from server.records.subjects import Id
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["notifications"])
Viewer = Annotated[Principal, Depends(viewer)]
Span = Literal["day", "week"]
SPANS: dict[Span, timedelta] = {"day": timedelta(days=1), "week": timedelta(days=7)}


@router.get("/notifications")
def list_notifications(principal: Viewer, database: DatabaseOf, unread: bool = False) -> NotificationList:
    """What you were told, unread first; at most 200, of the last 60 days."""
    with database.read() as session:
        items = service.listed(session, principal, unread=unread)
        number = service.num_unread(session, principal.user_id)
    return NotificationList.model_validate({"items": items, "num_unread": number})


@router.post("/notifications/read", status_code=status.HTTP_204_NO_CONTENT)
def read_all_notifications(principal: Viewer, database: DatabaseOf) -> None:
    """Mark all of yours as read."""
    with database.write() as session:
        service.read(session, principal)


@router.post("/notifications/{notification_id}/read", status_code=status.HTTP_204_NO_CONTENT)
def read_notification(notification_id: Id, principal: Viewer, database: DatabaseOf) -> None:
    """Mark one of yours as read."""
    with database.write() as session:
        service.read(session, principal, notification_id)


@router.get("/notification-choices")
def show_choices(principal: Viewer, database: DatabaseOf) -> ChoicesOut:
    """Whose events reach you in the browser; webhooks are set up apart."""
    with database.read() as session:
        return ChoicesOut(choices=service.choices(session, principal))


@router.put("/notification-choices")
def change_choices(body: ChoicesIn, principal: Viewer, database: DatabaseOf) -> ChoicesOut:
    """Choose for the events named: off, mine (of your experiments and rules), or team."""
    with database.write() as session:
        service.choose(session, principal, {str(event): str(scope) for event, scope in body.choices.items()})
        return ChoicesOut(choices=service.choices(session, principal))


@router.get("/digest")
def show_digest(
    principal: Viewer,
    database: DatabaseOf,
    span: Annotated[Span, Query(description="How far back.")] = "day",
    mine: Annotated[bool, Query(description="Only of your experiments.")] = False,
) -> DigestOut:
    """What happened in the last day or week."""
    with database.read() as session:
        since = store_now(session) - SPANS[span]
        return DigestOut.model_validate(digest(session, since, principal.user_id if mine else None))
