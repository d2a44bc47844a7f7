"""Values of a report as JSON spells them."""

from __future__ import annotations

import math
from typing import Any


def plain(value: Any) -> Any:
    """The value with NaN and infinities spelled out and other numbers as they are; tuples become lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value
