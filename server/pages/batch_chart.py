"""Throughput by batch size for each recipe, with the sizes that did not fit, as a drawing for the template."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from server.pages import colours
from server.pages.formats import number, size

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 340, 78, 24, 16, 64
LANE = 18  # height of one recipe's lane of sizes that did not fit


def drawing_of(reports: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Lines, points, ticks and crosses; None while no size has been tried. Both axes are logarithmic."""
    tried = [point for report in reports for point in report["content"].get("points", [])]
    rates = [float(point["samples_per_s"]) for point in tried if point["fits"] and point["samples_per_s"] > 0]
    if not tried or not rates:
        return None
    sizes = [int(point["batch"]) for point in tried]
    x_range, y_range = _range(min(sizes), max(sizes)), _range(min(rates), max(rates))
    height = HEIGHT + LANE * len(reports)
    lines = []
    for lane, report in enumerate(reports):
        points = report["content"].get("points", [])
        fitting = [point for point in points if point["fits"] and point["samples_per_s"] > 0]
        placed = [
            {"x": _x(point["batch"], x_range), "y": _y(point["samples_per_s"], y_range), "title": _title(report, point)}
            for point in fitting
        ]
        crosses = [
            {"x": _x(point["batch"], x_range), "title": f"{report['recipe']}: {point['batch']:,} did not fit"}
            for point in points
            if not point["fits"]
        ]
        lines.append(
            {
                "style": colours.natural_style(report["recipe_json"]),
                "recipe": report["recipe"],
                "device": report["device"],
                "dots": placed,
                "points": " ".join(f"{dot['x']},{dot['y']}" for dot in placed),
                "crosses": crosses,
                "lane_y": HEIGHT - BOTTOM + 44 + lane * LANE,
            }
        )
    return {
        "width": WIDTH, "height": height, "left": LEFT, "right": WIDTH - RIGHT, "foot": HEIGHT - BOTTOM, "lines": lines,
        "x_ticks": [(_x(tick, x_range), f"{tick:,}") for tick in powers(*x_range)],
        "y_ticks": [(_y(tick, y_range), number(tick, 3)) for tick in _levels(y_range)],
    }  # fmt: skip


def powers(low: float, high: float) -> list[int]:
    """At most nine powers of two between both."""
    exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    stride = max(1, math.ceil(len(exponents) / 9))
    return [2**exponent for exponent in exponents if exponent >= 0][::stride]


def _levels(limits: tuple[float, float]) -> list[float]:
    low, high = limits
    return [low * (high / low) ** share for share in (0.08, 0.36, 0.64, 0.92)]


def _range(low: float, high: float) -> tuple[float, float]:
    return low / 1.15, high * 1.15


def _x(value: float, limits: tuple[float, float]) -> float:
    share = math.log(value / limits[0]) / math.log(limits[1] / limits[0])
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _y(value: float, limits: tuple[float, float]) -> float:
    share = math.log(value / limits[0]) / math.log(limits[1] / limits[0])
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def _title(report: dict[str, Any], point: dict[str, Any]) -> str:
    return (
        f"{report['recipe']} on {report['device']}: batch {point['batch']:,}, {number(point['samples_per_s'], 3)} "
        f"samples/s, peak {size(point['peak_bytes'])}"
    )
