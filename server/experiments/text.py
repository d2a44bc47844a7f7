"""What a request body may hold, whatever its fields: text every database can store, and no bottomless nesting."""

from __future__ import annotations

import re
from typing import Any

MAX_DEPTH = 20
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")  # tabs and line breaks are text


def check_body(value: Any, depth: int = 0) -> None:
    """Raises `ValueError` for control characters, lone surrogates or nesting beyond `MAX_DEPTH`."""
    if depth > MAX_DEPTH:
        raise ValueError(f"the JSON is nested more than {MAX_DEPTH} levels deep: send a flatter object")
    if isinstance(value, str):
        found = _FORBIDDEN.search(value)
        if found is not None:
            raise ValueError(
                f"the text {value[:60]!a} holds the character {found.group()!a}, which cannot be stored: remove it"
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            check_body(key, depth + 1)
            check_body(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_body(item, depth + 1)
