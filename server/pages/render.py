"""Turning a template and a context into a page."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, select_autoescape
from markupsafe import Markup

from server.access import Principal
from server.access.dependencies import current_principal
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.notifications.service import num_unread
from server.pages import colours, regions
from server.pages.assets import WEB, assets
from server.pages.compression import compressed
from server.pages.formats import FILTERS
from server.pages.terms import slug, term

THEME_COOKIE = "ampboard_theme"
THEMES = ("system", "light", "dark")
WITH_SECRETS = frozenset({"account.html", "signin.html"})  # not compressed
_JSON_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def script_json(value: object) -> Markup:
    """A value for `<script type="application/json">`: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_JSON_ESCAPES))  # noqa: S704 - escaped for a JSON script element just above


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(WEB / "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.filters["script_json"] = script_json
    environment.filters["slug"] = slug
    environment.globals["term"] = term
    environment.globals["asset"] = assets.url
    environment.globals["plotly_style_id"] = assets.plotly_style_id
    environment.globals["styles"] = colours.STYLES
    environment.globals["slot_of"] = colours.natural_slot
    return environment


_templates = _environment()


def theme_of(request: Request) -> str:
    """The theme chosen in this browser; ``system`` follows the operating system."""
    chosen = request.cookies.get(THEME_COOKIE, "system")
    return chosen if chosen in THEMES else "system"


# What reading a value of an unexpected shape raises.
MALFORMED = (TypeError, LookupError, AttributeError, ValueError, ArithmeticError, RecursionError, TemplateError)


class _Anybody:
    """Stands for a signed-in person with every right, where only the shape of a part matters."""

    @staticmethod
    def may(role: str) -> bool:
        return bool(role)


def can_show(template: str, **context: Any) -> bool:
    """Whether a part of a page takes these values: what programs reported may have any shape."""
    try:
        _templates.get_template(template).render(principal=_Anybody(), now=datetime.now(UTC), **context)
    except MALFORMED:
        return False
    return True


def _num_unread(request: Request, principal: Principal | None) -> int:
    """What the bell of every page counts; nothing while the store is away, since that page must be shown as well."""
    if principal is None:
        return 0
    database: Database = request.app.state.database
    try:
        with database.read() as session:
            return num_unread(session, principal.user_id)
    except StoreUnavailable:
        return 0


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> Response:
    """Render ``template`` with what every page needs: who is signed in, the theme, the address, the time."""
    principal = current_principal(request)
    html = _templates.get_template(template).render(
        request=request,
        path=request.url.path,
        principal=principal,
        num_unread=_num_unread(request, principal),
        theme=theme_of(request),
        now=datetime.now(UTC),
        **context,
    )
    if status == 200 and template not in WITH_SECRETS and regions.are_asked(request):
        return compressed(request, regions.changed(request, html))
    response = HTMLResponse(regions.marked(html), status_code=status)
    return response if template in WITH_SECRETS else compressed(request, response)
