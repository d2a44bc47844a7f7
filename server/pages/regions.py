"""Regions: the parts of a page that a script may ask for alone, and gets where they are not what it has.

A region is an element with ``data-region``. The page says in ``data-marks`` of its main element which content each
region has; a script that follows the page sends those marks back in ``Ampboard-Regions`` and is answered with the
regions whose marks differ. What is live travels by itself that way, not the whole page around it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response

MEDIA_TYPE = "application/vnd.ampboard.regions+json"
HEADER = "ampboard-regions"
MAX_HEADER = 4096
_START = re.compile(r'<([a-z]+)\b[^>]*\bdata-region="([\w-]+)"[^>]*>')
_MAIN = '<main id="main"'


def regions_of(html: str) -> dict[str, str]:
    """The inner HTML of every region by its name. What people wrote is escaped, so tags are those of the templates."""
    return {found[2]: html[found.end() : _end_of(html, found[1], found.end())] for found in _START.finditer(html)}


def _end_of(html: str, tag: str, start: int) -> int:
    """Where the element ends whose content begins at ``start``; the end of the text when it is never closed."""
    depth = 1
    for found in re.compile(rf"<(/?){tag}\b").finditer(html, start):
        depth += -1 if found[1] else 1
        if depth == 0:
            return found.start()
    return len(html)


def mark_of(inner: str) -> str:
    """Equal for equal content."""
    return hashlib.blake2s(inner.encode(), digest_size=6).hexdigest()


def are_asked(request: Request) -> bool:
    """Whether a script asks for what changed instead of the page."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def changed(request: Request, html: str) -> Response:
    """The regions of a rendered page that differ from what the client says it has, each with its new mark."""
    told = request.headers.get(HEADER, "")[:MAX_HEADER]
    held = dict(part.split("=", 1) for part in told.split(",") if "=" in part)
    regions: dict[str, dict[str, Any]] = {}
    for name, inner in regions_of(html).items():
        mark = mark_of(inner)
        if held.get(name) != mark:
            regions[name] = {"mark": mark, "html": inner}
    return JSONResponse({"regions": regions}, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})


def marked(html: str) -> str:
    """The page with the marks of its regions on its main element."""
    marks = ",".join(f"{name}={mark_of(inner)}" for name, inner in regions_of(html).items())
    return html.replace(_MAIN, f'{_MAIN} data-marks="{marks}"', 1) if marks else html
