"""Parallel coordinates of runs: one axis per parameter, recipe and metric, each run a line across them.

The layout is made here and drawn as SVG by the template, so that it reads, prints and scales without a script;
`web/js/lib/brush.js` only hides what a brush leaves out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server.pages.formats import as_float
from server.pages.metric_text import heading_of, metric_text

MAX_AXES = 10
MAX_CHOICES = 12  # a text with more values than these is no axis
WIDTH, HEIGHT, TOP, BOTTOM, SIDE = 1000, 300, 34, 26, 90


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: where it stands, its ticks as (y, text), and each run's y; None for a run without the value."""

    key: str
    label: str
    x: float
    ticks: tuple[tuple[float, str], ...]
    ys: tuple[float | None, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Column:
    """The values of one name over all runs, before they have a place."""

    key: str
    label: str
    values: tuple[Any, ...]
    is_metric: bool = False


def columns_of(runs: Sequence[dict[str, Any]], config: Sequence[dict[str, Any]]) -> list[Column]:
    """Recipe, the parameters in which runs differ, then figures that runs have; constant ones are no axis."""
    found = [Column(key="recipe", label="recipe", values=tuple(run["recipe_name"] for run in runs))]
    if len({run["experiment_name"] for run in runs}) > 1:
        found.insert(0, Column(key="experiment", label="experiment", values=tuple(r["experiment_name"] for r in runs)))
    for row in config:
        name = str(row["name"])
        if row["differs"] and (name.startswith("workload.params.") or name == "steps"):
            label = name.removeprefix("workload.params.")
            found.append(Column(key=name, label=label, values=tuple(row["values"])))
    for name in _metrics(runs):
        values = tuple(as_float(_figure(run, name)) for run in runs)
        found.append(Column(key=name, label=heading_of(name), values=values, is_metric=True))
    shown = [column for column in found if _varies(column)]
    return shown[:MAX_AXES]


def _metrics(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The figures worth an axis: each primary metric, loss, speed, memory, loss scale."""
    primaries = dict.fromkeys(f"eval/{run['primary']['metric']}" for run in runs)
    usual = ("train/loss", "perf/samples_per_s", "memory/allocated_bytes", "memory/process_bytes", "amp/loss_scale")
    return [*usual, *primaries]  # the answer is the last axis


def _figure(run: dict[str, Any], name: str) -> object:
    summary = run["metrics"].get(name)
    if summary is None or (run["numerics"] == "emulated" and name.startswith(("perf/", "memory/"))):
        return None
    if name.startswith("memory/"):
        return summary["max"]
    return summary["mean"] if name.startswith("perf/") else summary["last"]


def _varies(column: Column) -> bool:
    known = [value for value in column.values if value is not None]
    if len(known) < 2 or len({str(value) for value in known}) < 2:
        return False
    numbers = [as_float(value) for value in known]
    is_numeric = all(number is not None for number in numbers) and not all(isinstance(v, str) for v in known)
    return is_numeric or len({str(value) for value in known}) <= MAX_CHOICES


def axes_of(columns: Sequence[Column]) -> list[Axis]:
    """The columns as axes, evenly spaced."""
    gap = (WIDTH - 2 * SIDE) / max(1, len(columns) - 1)
    return [_axis(column, SIDE + index * gap) for index, column in enumerate(columns)]


def _axis(column: Column, x: float) -> Axis:
    values = column.values
    is_text = any(isinstance(value, str) for value in values) or any(isinstance(value, bool) for value in values)
    if is_text and not column.is_metric:
        choices = list(dict.fromkeys(str(value) for value in values if value is not None))
        place = {choice: _y((index + 0.5) / len(choices)) for index, choice in enumerate(choices)}
        ticks = tuple((place[choice], choice) for choice in choices)
        ys = tuple(place[str(value)] if value is not None else None for value in values)
        return Axis(key=column.key, label=column.label, x=round(x, 1), ticks=ticks, ys=ys, texts=_texts(column))
    numbers = [as_float(value) for value in values]
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    log = low > 0 and high / low > 50
    ys = tuple(_place(number, low, high, log=log) for number in numbers)
    middle = math.sqrt(low * high) if log else (low + high) / 2
    marks = [low, middle, high] if high > low else [low]
    ticks = tuple((_y(_share(mark, low, high, log=log)), metric_text(column.key, mark, 3)) for mark in marks)
    return Axis(key=column.key, label=column.label, x=round(x, 1), ticks=ticks, ys=ys, texts=_texts(column))


def _texts(column: Column) -> tuple[str, ...]:
    return tuple(
        metric_text(column.key, value) if column.is_metric else ("–" if value is None else str(value))
        for value in column.values
    )


def _place(number: float | None, low: float, high: float, *, log: bool) -> float | None:
    """NaN and infinities lie on the axis' foot, below every finite value: they are shown, not left out."""
    if number is None:
        return None
    if not math.isfinite(number):
        return float(HEIGHT - 8)
    return _y(_share(number, low, high, log=log))


def _share(number: float, low: float, high: float, *, log: bool) -> float:
    if high <= low:
        return 0.5
    return math.log(number / low) / math.log(high / low) if log else (number - low) / (high - low)


def _y(share: float) -> float:
    """From a share of the axis, 0 at its foot, to a place in the drawing."""
    return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def path_of(axes: Sequence[Axis], run: int) -> str:
    """The SVG path of a run; it is interrupted where the run has no value."""
    pieces, pen = [], "M"
    for axis in axes:
        y = axis.ys[run]
        if y is None:
            pen = "M"
            continue
        pieces.append(f"{pen}{axis.x} {y}")
        pen = "L"
    return "".join(pieces)
