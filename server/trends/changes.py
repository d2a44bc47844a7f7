"""The changes in the series of a workload's history. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.trends.change_points import changes_of
from server.trends.queries import MEASURES, Point


def series_of(points: Sequence[Point]) -> dict[tuple[str, str, str], list[Point]]:
    """The points by recipe, device and settings."""
    found: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        found.setdefault(point.series, []).append(point)
    return found


def changes_in(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Every change of every series and measure, with whether it was for the worse."""
    found = []
    for (recipe, device, settings), series in series_of(points).items():
        for measure in MEASURES:
            known = [(point, value) for point in series if (value := point.value(measure)) is not None]
            for change in changes_of([value for _, value in known]):
                first = known[change.index][0]
                rises = change.after > change.before
                found.append(
                    {
                        "measure": measure, "recipe": recipe, "device": device, "settings": settings,
                        "experiment_id": first.experiment_id, "at": first.at,
                        "before": change.before, "after": change.after,
                        "is_worse": rises != first.is_better_higher(measure),
                    }
                )  # fmt: skip
    return found
