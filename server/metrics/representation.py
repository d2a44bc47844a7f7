"""Windows on the wire: JSON, or raw arrays for clients that ask; and when a client need not ask again.

``application/vnd.ampboard.series`` is: the 8 bytes ``AMPSER01``; the header's length as a little-endian uint64; the
header, JSON padded with spaces to a multiple of 8; then for every series of the header, in order, its arrays: int64
steps, float64 values, float64 unix seconds, each ``num_points`` long and little-endian. Every array begins at a
multiple of 8, so a browser views it in place (`BigInt64Array`, `Float64Array`), as NumPy does (`numpy.frombuffer`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import Request, Response

from server.db.tables import Run
from server.metrics.read import Window
from server.version import VERSION

BINARY = "application/vnd.ampboard.series"
MAGIC = b"AMPSER01"
FINAL_STATES = frozenset({"completed", "failed", "cancelled"})


def wants_binary(request: Request) -> bool:
    """Whether the Accept header names the binary form."""
    return BINARY in request.headers.get("accept", "")


def entity_tag(request: Request, runs: Sequence[Run]) -> str | None:
    """A tag of this answer while its runs stay as they ended; None as long as one of them may still write."""
    if not runs or any(run.state not in FINAL_STATES for run in runs):
        return None
    told = [VERSION, *((run.id, run.attempt, str(run.ended_at)) for run in runs)]
    key = repr((told, request.url.path, request.url.query, wants_binary(request)))
    return f'"{hashlib.sha256(key.encode()).hexdigest()[:32]}"'


def is_fresh(request: Request, tag: str | None) -> bool:
    """Whether the client holds the answer already."""
    given = request.headers.get("if-none-match", "")
    return tag is not None and (
        given.strip() == "*" or tag in [part.strip().removeprefix("W/") for part in given.split(",")]
    )


def not_modified(tag: str | None) -> Response:
    return Response(status_code=304, headers=_headers(tag))


def respond(request: Request, content: dict[str, Any], windows: Sequence[Window], tag: str | None) -> Response:
    """JSON of ``content``, or its binary form: there the windows' points are arrays behind the header."""
    if not wants_binary(request):
        return Response(msgspec.json.encode(content), media_type="application/json", headers=_headers(tag))
    return Response(pack_windows(windows), media_type=BINARY, headers=_headers(tag))


def pack_windows(windows: Sequence[Window]) -> bytes:
    """The binary form of the windows."""
    head = msgspec.json.encode({"series": [window.header() for window in windows]})
    head += b" " * (-len(head) % 8)
    parts: list[bytes | memoryview] = [MAGIC, len(head).to_bytes(8, "little"), head]
    for window in windows:
        points = window.points
        parts += [points.steps.astype("<i8", copy=False).data, points.values.data, points.times.data]
    return b"".join(parts)


def _headers(tag: str | None) -> dict[str, str]:
    headers = {"Vary": "Accept"}
    if tag is not None:
        headers |= {"ETag": tag, "Cache-Control": "private, no-cache"}
    return headers
