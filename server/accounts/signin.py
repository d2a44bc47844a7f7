"""Signing in and out, as plain forms: they work without JavaScript. The page with the forms is in `server.pages`."""

from __future__ import annotations

import logging
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse

from server.access import viewer
from server.access.cookies import SESSION_COOKIE, clear_session_cookie, set_session_cookie
from server.accounts import service
from server.accounts.passwords import password_matches
from server.accounts.throttle import Throttle
from server.db.engine import Database
from server.errors import Unauthenticated
from server.state import DatabaseOf, SettingsOf

logger = logging.getLogger(__name__)
router = APIRouter(include_in_schema=False)


def safe_target(target: str) -> str:
    """Where to go after signing in: a path on this server, whatever was asked."""
    parts = urlsplit(target)
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and not parts.scheme and not parts.netloc
    return target if plain and target.isprintable() else "/"


@router.post("/signin")
def sign_in(
    request: Request,
    database: DatabaseOf,
    settings: SettingsOf,
    token: Annotated[str, Form(max_length=200)] = "",
    name: Annotated[str, Form(max_length=80)] = "",
    password: Annotated[str, Form(max_length=1000)] = "",
    next: Annotated[str, Form(max_length=2000)] = "/",
) -> Response:
    """Use up a sign-in link, or check a name and password; then go to ``next`` with a session cookie."""
    user_id = None if token else _owner_of_password(database, request.app.state.throttle, name, password)
    with database.read() as session:  # a stranger's guesses take no write lock
        if token and not service.link_is_live(session, token):
            raise Unauthenticated(service.WRONG_LINK)
    with database.write() as session:
        if user_id is None:
            user = service.consume_sign_in_link(session, token)
        else:
            user = service.enter_with_password(session, user_id)
        secret = service.open_session(session, user, settings.session_days)
    response = RedirectResponse(safe_target(next), status_code=303)
    set_session_cookie(request, response, secret, settings.session_days)
    return response


def _owner_of_password(database: Database, throttle: Throttle, name: str, password: str) -> int:
    """Who has this name and password; outside any transaction, for argon2 takes its time. Raises `Unauthenticated`."""
    throttle.check(name)
    with database.read() as session:
        user_id, stored = service.password_hash_of(session, name)
    if not password_matches(stored, password) or user_id is None:
        throttle.failed(name)
        logger.warning("a sign-in with a wrong name or password was refused")
        raise Unauthenticated(service.WRONG_PASSWORD)
    return user_id


@router.post("/signout", dependencies=[Depends(viewer)])
def sign_out(request: Request, database: DatabaseOf) -> Response:
    """End this browser's session."""
    with database.write() as session:
        service.close_session(session, request.cookies.get(SESSION_COOKIE, ""))
    response = RedirectResponse("/signin", status_code=303)
    clear_session_cookie(response)
    return response
