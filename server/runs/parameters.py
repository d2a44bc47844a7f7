"""Parameters of runs as rows, beside the run's configuration, so that lists filter by them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

from server.db.tables import RunParameter

MAX_NAME_CHARS, MAX_TEXT_CHARS = 120, 400


def add_parameters(session: Session, run_ids: Iterable[int], params: Mapping[str, Any]) -> None:
    """Add the rows of the parameters that these new runs share."""
    rows = [
        {"run_id": run_id, "name": name[:MAX_NAME_CHARS], "text": spelled(value), "number": number_of(value)}
        for run_id in run_ids
        for name, value in params.items()
    ]
    if rows:
        session.execute(insert(RunParameter), rows)


def spelled(value: Any) -> str:
    """A parameter as queries compare it: JSON, and text without its quotes."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text[:MAX_TEXT_CHARS]


def number_of(value: Any) -> float | None:
    """The value as a number that SQL can hold; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
