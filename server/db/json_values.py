"""JSON that every database and every browser accepts.

JSON has no NaN and no infinities, PostgreSQL no NUL character, UTF-8 no lone surrogates: figures are spelled "NaN",
"Infinity" and "-Infinity" (Python's `float` reads all three back), and such characters are replaced one for one.
"""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def spell(value: float) -> float | str:
    """The number itself when finite, else its name."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def clean_text(text: str) -> str:
    """The text with NUL and lone surrogates replaced by U+FFFD; its length stays."""
    return _UNSTORABLE.sub("\ufffd", text)


def to_json(value: Any) -> Any:
    """Plain JSON values of structs, mappings, sequences and scalars; see the module for what is spelled otherwise."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return spell(value)
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return {field: to_json(getattr(value, field)) for field in value.__struct_fields__}
    return clean_text(str(value))
