"""Keyset cursors: the place in an ordered list where the next page begins, opaque to callers."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from server.errors import Fault, Invalid

MAX_LIMIT = 200


def encode_cursor(*key: Any) -> str:
    """The cursor after the row with this sort key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *types: type) -> tuple[Any, ...]:
    """The sort key of a cursor, checked against ``types``. Raises `Invalid`."""
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        key = None
    if (
        isinstance(key, list)
        and len(key) == len(types)
        and all(isinstance(part, kind) and not isinstance(part, bool) for part, kind in zip(key, types, strict=True))
    ):
        return tuple(key)
    rule = "a cursor is the next_cursor of an earlier page of the same list and sort order"
    raise Invalid([Fault(field="cursor", value=cursor, rule=rule, remedy="leave it out to begin at the first page")])
