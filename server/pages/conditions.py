"""Conditions of a comparison and environments of runs, as lines of name and value."""

from __future__ import annotations

from typing import Any

_NAMES = {
    "num_threads": "threads",
    "matched_on": "matched on",
    "growth_exercised": "loss-scale growth exercised",
    "growth_interval": "growth interval",
}


def condition_lines(values: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Flat lines of what is known, nested names joined by a dot."""
    lines: list[tuple[str, str]] = []
    for name, value in (values or {}).items():
        title = _NAMES.get(name, str(name).replace("_", " "))
        if isinstance(value, dict):
            lines += [(f"{title}: {inner}", text) for inner, text in condition_lines(value)]
        elif value not in (None, "", []):
            lines.append((title, written(value)))
    return lines


def written(value: Any) -> str:
    """One value in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if isinstance(value, float) else f"{value:,}"
    if isinstance(value, list):
        return ", ".join(written(item) for item in value)
    return str(value)
