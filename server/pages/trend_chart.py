"""A workload's history as a drawing: one panel per measure, a line per series, a mark where its level changed.

Laid out here and drawn as SVG by the template: each point is a link with its figures as a title, and it prints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from server.pages import colours
from server.pages.formats import number, size
from server.trends.changes import series_of
from server.trends.queries import MEASURES, Measure, Point

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 190, 78, 18, 12, 26
TITLES: dict[Measure, str] = {"speed": "Throughput", "memory": "Peak memory", "quality": "Quality"}
MAX_LABELS = 8


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where each experiment stands on the x axis: in equal steps by order, or by the time it ended."""

    by_experiment: dict[int, float]
    labels: tuple[tuple[float, str], ...]


def places_of(points: Sequence[Point], by: str) -> Places:
    """Places over the experiments of ``points``; ``by`` is ``order`` or ``time``."""
    ended = {point.experiment_id: point for point in points}
    listed = sorted(ended.values(), key=lambda point: (point.at, point.experiment_id))
    span = WIDTH - LEFT - RIGHT
    if by == "time" and len(listed) > 1 and listed[-1].at > listed[0].at:
        total = (listed[-1].at - listed[0].at).total_seconds()
        xs = [LEFT + span * (point.at - listed[0].at).total_seconds() / total for point in listed]
    else:
        xs = [LEFT + span * (index + 0.5) / max(1, len(listed)) for index in range(len(listed))]
    by_experiment = {point.experiment_id: round(x, 1) for point, x in zip(listed, xs, strict=True)}
    labels: list[tuple[float, str]] = []
    for point in listed:
        x = by_experiment[point.experiment_id]
        if not labels or x - labels[-1][0] > span / MAX_LABELS:
            labels.append((x, _label(point, by)))
    return Places(by_experiment=by_experiment, labels=tuple(labels))


def _label(point: Point, by: str) -> str:
    return _day(point.at) if by == "time" or not point.commit else point.commit[:8]


def _day(at: datetime) -> str:
    return f"{at:%d %b %Y}"


def panels_of(points: Sequence[Point], changes: Sequence[dict[str, Any]], places: Places) -> list[dict[str, Any]]:
    """One panel for each measure that has a figure, with lines, points, ticks and changes placed."""
    return [panel for measure in MEASURES if (panel := _panel(measure, points, changes, places)) is not None]


def _panel(
    measure: Measure, points: Sequence[Point], changes: Sequence[dict[str, Any]], places: Places
) -> dict[str, Any] | None:
    values = [value for point in points if (value := point.value(measure)) is not None]
    if not values:
        return None
    low, high = _range(values)
    lines, dots = [], []
    for series in series_of(points).values():
        known = [(point, value) for point in series if (value := point.value(measure)) is not None]
        placed = [(places.by_experiment[point.experiment_id], _y(value, low, high)) for point, value in known]
        style = colours.natural_style(series[0].recipe_json)
        if len(placed) > 1:
            lines.append({"style": style, "points": " ".join(f"{x},{y}" for x, y in placed)})
        dots += [
            {"style": style, "x": x, "y": y, "id": point.experiment_id, "bad": point.verdict == "UNSAFE",
             "title": _title(point, measure, value)}
            for (point, value), (x, y) in zip(known, placed, strict=True)
        ]  # fmt: skip
    metrics = {point.metric for point in points}
    title = TITLES[measure] if measure != "quality" else f"Quality: {', '.join(sorted(metrics))}"
    better = {point.is_better_higher(measure) for point in points}
    return {
        "measure": measure,
        "title": title,
        "note": {True: "higher is better", False: "lower is better"}[better.pop()] if len(better) == 1 else "",
        "lines": lines,
        "dots": dots,
        "ticks": [(_y(value, low, high), text_of(measure, value)) for value in (low, (low + high) / 2, high)],
        "changes": [
            {
                "x": places.by_experiment[change["experiment_id"]],
                "style": colours.natural_style(_recipe_json(points, change["recipe"])),
                "is_worse": change["is_worse"],
                "text": change_text(change),
            }
            for change in changes
            if change["measure"] == measure and change["experiment_id"] in places.by_experiment
        ],
    }


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return low - room, high + room


def _y(value: float, low: float, high: float) -> float:
    return round(HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)


def _recipe_json(points: Sequence[Point], recipe: str) -> dict[str, Any]:
    return next((point.recipe_json for point in points if point.recipe == recipe), {})


def text_of(measure: Measure, value: float | None) -> str:
    """A figure of a measure with its unit; a dash for none."""
    if value is None or not math.isfinite(value):
        return "–"
    if measure == "memory":
        return size(value)
    return f"{number(value, 3)} /s" if measure == "speed" else number(value, 4)


def change_text(change: dict[str, Any]) -> str:
    """A change in words: by how much, and from what to what."""
    measure: Measure = change["measure"]
    before, after = change["before"], change["after"]
    share = 100 * (after - before) / abs(before) if before else math.inf
    sign = "+" if share > 0 else "−"
    worse = "worse" if change["is_worse"] else "better"
    span = f"{text_of(measure, before)} to {text_of(measure, after)}"
    return f"{change['recipe']}: {sign}{abs(share):.1f} % ({span}), {worse}"


def _title(point: Point, measure: Measure, value: float) -> str:
    parts = [
        f"{text_of(measure, value)}: {point.recipe} on {point.device}", point.name[:80], point.settings,
        _day(point.at), f"commit {point.commit[:8]}" if point.commit else "", point.verdict or "",
    ]  # fmt: skip
    return "; ".join(part for part in parts if part)
