"""Compressed answers: pages and points are text, and mostly repetition."""

from __future__ import annotations

import gzip

from fastapi import Request
from fastapi.responses import Response

SMALLEST = 1400  # one packet
LEVEL = 5


def compressed(request: Request, response: Response) -> Response:
    """The response with its body compressed when the client takes it and it is worth it.

    Never for a body that holds a secret beside text somebody else may have chosen: its length would tell.
    """
    response.headers["Vary"] = "Accept-Encoding"
    body = bytes(response.body)
    if len(body) >= SMALLEST and "gzip" in request.headers.get("accept-encoding", ""):
        response.body = gzip.compress(body, LEVEL, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response
