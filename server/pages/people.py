"""The pages of signing in and of one's own account."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import ROLES, Principal, submitter, viewer
from server.access.dependencies import current_principal
from server.accounts import service
from server.accounts.signin import safe_target
from server.db.tables import Token
from server.errors import Conflict, Forbidden, Invalid
from server.pages.render import page
from server.state import DatabaseOf, SettingsOf
from server.webhooks import service as webhooks
from server.webhooks.outbox import EVENTS

router = APIRouter(include_in_schema=False)
Viewer = Annotated[Principal, Depends(viewer)]


@router.get("/signin")
def sign_in_page(
    request: Request,
    token: Annotated[str, Query(max_length=200)] = "",
    next: Annotated[str, Query(max_length=2000)] = "/",
) -> Response:
    """The sign-in page; a link's token is only used up by its button, so that a mail scanner cannot burn it."""
    if current_principal(request) is not None and not token:
        return RedirectResponse(safe_target(next), status_code=303)
    return page(request, "signin.html", token=token, next=safe_target(next), name="", error="")


@router.get("/account")
def account_page(request: Request, principal: Viewer, database: DatabaseOf) -> Response:
    """Who one is here, and one's own API tokens."""
    with database.read() as session:
        return _account(request, session, principal)


def _account(
    request: Request,
    session: Session,
    principal: Principal,
    *,
    secret: str = "",
    secret_name: str = "",
    error: str = "",
    webhook_secret: str = "",
    webhook_error: str = "",
) -> Response:
    query = (
        select(Token).where(Token.user_id == principal.user_id).order_by(Token.revoked_at.is_not(None), Token.id.desc())
    )
    roles = ROLES[: ROLES.index(principal.role) + 1]
    context: dict[str, Any] = {
        "tokens": session.scalars(query).all(),
        "roles": roles,
        "secret": secret,
        "secret_name": secret_name,
        "webhooks": webhooks.list_webhooks(session, principal) if principal.may("submitter") else [],
        "webhook_events": EVENTS,
        "webhook_secret": webhook_secret,
        "webhook_error": webhook_error,
    }
    return page(request, "account.html", status=422 if error or webhook_error else 200, error=error, **context)


@router.post("/account/tokens")
def create_token(
    request: Request,
    principal: Viewer,
    database: DatabaseOf,
    name: Annotated[str, Form(max_length=200)] = "",
    role: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Create a token and show its secret, this once."""
    try:
        with database.write() as session:
            user = service.get_user(session, principal.user_id)
            token, secret = service.create_token(session, user, name, role or None, actor=principal)
            return _account(request, session, principal, secret=secret, secret_name=token.name)
    except (Invalid, Forbidden) as error:
        with database.read() as session:
            return _account(request, session, principal, error=str(error))


@router.post("/account/tokens/{token_id}/revoke")
def revoke_token(token_id: int, principal: Viewer, database: DatabaseOf) -> Response:
    """End one of one's own tokens at once."""
    with database.write() as session:
        service.revoke_token(session, token_id, principal)
    return RedirectResponse("/account", status_code=303)


@router.post("/account/webhooks")
def create_webhook(
    request: Request,
    principal: Annotated[Principal, Depends(submitter)],
    database: DatabaseOf,
    settings: SettingsOf,
    url: Annotated[str, Form(max_length=600)] = "",
    event: Annotated[list[str] | None, Form()] = None,
    team: Annotated[bool, Form()] = False,
) -> Response:
    """Create a webhook and show its secret, this once."""
    try:
        with database.write() as session:
            webhook = webhooks.create(session, settings, principal, url.strip(), event or [], team=team)
            return _account(request, session, principal, webhook_secret=webhook.secret)
    except (Conflict, Invalid, Forbidden) as error:
        faults = [f"{fault.rule}: {fault.remedy}" for fault in error.faults] if isinstance(error, Invalid) else []
        with database.read() as session:
            return _account(request, session, principal, webhook_error="; ".join(faults) or str(error))


@router.post("/account/webhooks/{webhook_id}/delete")
def delete_webhook(
    webhook_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf
) -> Response:
    """Delete a webhook."""
    with database.write() as session:
        webhooks.remove(session, webhook_id, principal)
    return RedirectResponse("/account", status_code=303)
