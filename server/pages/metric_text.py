"""Figures of metrics with the unit that their name tells: 6.5 GB, 905 samples/s, 3.2 %."""

from __future__ import annotations

import math
from collections.abc import Sequence

from server.pages.formats import as_float, duration, number, percent, size

_RATES = {"samples_per_s": "samples/s", "tokens_per_s": "tokens/s", "tflops": "TFLOP/s"}


def unit_of(name: str) -> str:
    """The kind of figure that a series of this name holds: bytes, seconds, fraction, a rate, or nothing."""
    last = name.rpartition("/")[2]
    if last.endswith("_bytes"):
        return "bytes"
    if last in _RATES:
        return _RATES[last]
    if last.endswith("_s"):
        return "seconds"
    return "fraction" if last.endswith("_fraction") else ""


def metric_text(name: str, value: object, digits: int = 4) -> str:
    """A value of the series ``name`` for people; NaN and infinities by name, a dash for none."""
    figure = as_float(value)
    unit = unit_of(name)
    if figure is None or not math.isfinite(figure) or not unit:
        return number(value, digits)
    if unit == "bytes":
        return size(figure)
    if unit == "seconds":
        return duration(figure)
    if unit == "fraction":
        return percent(figure)
    return f"{number(figure, min(digits, 3))} {unit}"


def difference_text(name: str, value: float) -> str:
    """A difference of two values of the series, with its sign."""
    if value == 0:
        return "±0"
    sign = "+" if value > 0 else "−"
    return f"{sign}{metric_text(name, abs(value), 2)}"


def together(name: str, values: Sequence[float], joint: str, digits: Sequence[int]) -> str:
    """Several values of the series with ``joint`` between them; a rate's unit comes once, at the end."""
    unit = unit_of(name)
    texts = [metric_text(name, value, digit) for value, digit in zip(values, digits, strict=True)]
    if unit in _RATES.values():
        return joint.join(text.removesuffix(f" {unit}") for text in texts) + f" {unit}"
    return joint.join(texts)


_HEADINGS = {
    "perf/samples_per_s": "Throughput", "perf/tokens_per_s": "Tokens", "perf/step_time_s": "Step time",
    "train/loss": "Train loss", "memory/allocated_bytes": "Memory",
}  # fmt: skip


def heading_of(name: str) -> str:
    """The series as a column's heading: its name without what the figures say themselves."""
    if name in _HEADINGS:
        return _HEADINGS[name]
    for tail in ("_bytes", "_per_s", "_s", "_fraction"):
        if name.endswith(tail) and unit_of(name):
            return name.removesuffix(tail).replace("_", " ")
    return name.replace("_", " ")
