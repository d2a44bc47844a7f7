"""The session cookie: out of reach of scripts, sent to this site only."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

SESSION_COOKIE = "ampboard_session"


def set_session_cookie(request: Request, response: Response, secret: str, days: int) -> None:
    """Sign the browser in. Lax rather than Strict, so that a link in a chat opens signed in."""
    response.set_cookie(
        SESSION_COOKIE,
        secret,
        max_age=days * 86400,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
        path="/",
    )


def clear_session_cookie(response: Response) -> None:
    """Sign the browser out."""
    response.delete_cookie(SESSION_COOKIE, path="/", httponly=True, samesite="lax")
