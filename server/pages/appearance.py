"""The theme switch: works as a plain form, and at once when scripts run."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form
from fastapi.responses import RedirectResponse

from server.access import viewer
from server.pages.render import THEME_COOKIE, THEMES

router = APIRouter()


def local_path(target: str | None, default: str = "/") -> str:
    """``target`` when it is a path on this server, else ``default``: no open redirect."""
    if not target or not target.startswith("/") or target.startswith(("//", "/\\")) or "\\" in target:
        return default
    parts = urlsplit(target)
    return default if parts.scheme or parts.netloc else target


@router.post("/theme", include_in_schema=False, dependencies=[Depends(viewer)])
def choose_theme(theme: Annotated[str, Form()], back: Annotated[str, Form()] = "/") -> RedirectResponse:
    """Remember the theme for a year and go back."""
    response = RedirectResponse(local_path(back), status_code=303)
    chosen = theme if theme in THEMES else "system"
    response.set_cookie(THEME_COOKIE, chosen, max_age=365 * 86400, samesite="lax", path="/")
    return response
