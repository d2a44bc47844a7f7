"""The page a browser gets instead of problem details."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from server.errors import Problem
from server.pages.render import page


def error_page(request: Request, problem: Problem) -> Response:
    """A failed sign-in shows the sign-in form again; anything else says what was given, the rule and the remedy."""
    if problem.status in (401, 429) and request.url.path == "/signin":
        return page(request, "signin.html", status=problem.status, token="", next="/", name="", error=problem.detail)
    return page(request, "error.html", status=problem.status, problem=problem)
