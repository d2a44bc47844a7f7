"""Modules of a model as a tree by their dotted names, with a bar for one figure of each."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from server.pages.formats import as_float

MAX_DEPTH = 8  # of indentation
DECADES = 4  # that a bar spans below the largest figure: sensitivities differ by orders of magnitude


def tree(rows: Sequence[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    """Rows with ``module`` and a figure, in the order of the tree; parents without a row come as headings.

    Each gets ``label`` (the last part of its name), ``depth``, ``bar`` in per cent of the largest figure, on a
    logarithmic scale, and ``heading``.
    """
    by_name = {row["module"]: row for row in rows}
    names = {".".join(parts[:n]) for parts in (name.split(".") for name in by_name) for n in range(1, len(parts) + 1)}
    figures = {name: as_float(row.get(figure)) for name, row in by_name.items()}
    largest = max((value for value in figures.values() if value is not None and math.isfinite(value)), default=0.0)
    return [
        {
            **by_name.get(name, {"module": name}),
            "label": name.rpartition(".")[2] or name or "the model itself",
            "depth": min(name.count("."), MAX_DEPTH),
            "bar": _bar(figures.get(name), largest),
            "heading": name not in by_name,
        }
        for name in sorted(names, key=_order)
    ]


def _bar(value: float | None, largest: float) -> float:
    """Per cent; what is not finite fills the bar, since nothing is worse."""
    if value is None:
        return 0.0
    if not math.isfinite(value):
        return 100.0
    if value <= 0 or largest <= 0:
        return 0.0
    return round(100 * max(0.0, 1 + math.log10(value / largest) / DECADES), 1)


def _order(name: str) -> list[list[tuple[int, int, str]]]:
    """Parents before children, and ``blocks.2`` before ``blocks.10``."""
    parts = [re.findall(r"\d+|\D+", part) for part in name.split(".")]
    return [[(0, int(one), "") if one.isdecimal() else (1, 0, one) for one in part] for part in parts]
