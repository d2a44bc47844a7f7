"""The page of notifications: what one was told, what happened lately, and what shall reach one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from server.access import Principal, viewer
from server.notifications import service
from server.notifications.digest import digest
from server.notifications.events import ABOUT
from server.notifications.routes import SPANS, Span
from server.pages.render import page
from server.queue.clock import store_now
from server.state import DatabaseOf
from server.webhooks.service import list_webhooks

router = APIRouter(include_in_schema=False)
Viewer = Annotated[Principal, Depends(viewer)]
WORDS = {"off": "nothing", "mine": "of my work", "team": "of everybody's"}


@router.get("/notifications")
def show_notifications(
    request: Request,
    principal: Viewer,
    database: DatabaseOf,
    span: Annotated[Span, Query()] = "day",
    saved: Annotated[bool, Query()] = False,
) -> Response:
    """What one was told, unread first."""
    with database.read() as session:
        hooks = list_webhooks(session, principal) if principal.may("submitter") else []
        context: dict[str, Any] = {
            "items": service.listed(session, principal),
            "choices": service.choices(session, principal),
            "digest": digest(session, store_now(session) - SPANS[span]),
            "hooks": {event: sum(event in hook.events for hook in hooks) for event in ABOUT},
        }
    return page(request, "notifications.html", about=ABOUT, words=WORDS, span=span, saved=saved, **context)


@router.post("/notifications/read")
def read_all(principal: Viewer, database: DatabaseOf) -> RedirectResponse:
    """Put everything away."""
    with database.write() as session:
        service.read(session, principal)
    return RedirectResponse("/notifications", status_code=303)


@router.post("/notifications/{notification_id}/open")
def open_notification(notification_id: int, principal: Viewer, database: DatabaseOf) -> RedirectResponse:
    """Mark it as read and show what it is about."""
    with database.write() as session:
        target = service.read(session, principal, notification_id)
    return RedirectResponse(target, status_code=303)


@router.post("/notifications/choices")
def choose(
    principal: Viewer,
    database: DatabaseOf,
    event: Annotated[list[str] | None, Form()] = None,
    scope: Annotated[list[str] | None, Form()] = None,
) -> RedirectResponse:
    """Keep what shall reach one: events and scopes in the same order."""
    with database.write() as session:
        service.choose(session, principal, dict(zip(event or [], scope or [], strict=False)))
    return RedirectResponse("/notifications?saved=1#choices", status_code=303)
