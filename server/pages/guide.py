"""The help page: what each term means and where it is shown."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from server.access import viewer
from server.pages.glossary import COLOUR_KEY, KEYBOARD, SECTIONS
from server.pages.render import page

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])


@router.get("/help")
def help_page(request: Request) -> Response:
    """What the terms mean."""
    return page(request, "help.html", sections=SECTIONS, colour_key=COLOUR_KEY, keyboard=KEYBOARD)
