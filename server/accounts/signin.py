"""Signing in and out, as plain forms: they work without JavaScript. The page with the forms is in `server.pages`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse

from server.access import viewer
from server.access.cookies import SESSION_COOKIE, clear_session_cookie, set_session_cookie
from server.accounts import service
from server.accounts.throttle import Throttle
from server.errors import Unauthenticated
from server.state import DatabaseOf, SettingsOf

router = APIRouter(include_in_schema=False)

passwords = Throttle(max_failures=8, window_s=300.0)


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
    if not token:
        passwords.check(name)
    try:
        with database.write() as session:
            user = (
                service.consume_sign_in_link(session, token)
                if token
                else service.check_password(session, name, password)
            )
            secret = service.open_session(session, user, settings.session_days)
    except Unauthenticated:
        if not token:
            passwords.failed(name)
        raise
    response = RedirectResponse(safe_target(next), status_code=303)
    set_session_cookie(request, response, secret, settings.session_days)
    return response


@router.post("/signout", dependencies=[Depends(viewer)])
def sign_out(request: Request, database: DatabaseOf) -> Response:
    """End this browser's session."""
    with database.write() as session:
        service.close_session(session, request.cookies.get(SESSION_COOKIE, ""))
    response = RedirectResponse("/signin", status_code=303)
    clear_session_cookie(response)
    return response
