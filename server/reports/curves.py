"""Curves of one series as a still SVG: for files that open without a server. Pure.

Colours are presentation attributes, so no style and no script is needed. NaN and infinities are marks at the edge, as
on the pages; a logarithmic axis leaves out what is not positive and says how much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 64, 12, 14, 34
MARKS = {"NaN": "✕", "+∞": "▲", "−∞": "▼"}
MAX_MARKS = 60  # of one curve and kind


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One run's points: steps (N,) and values (N,)."""

    label: str
    colour: str
    dash: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class _Frame:
    first: float
    last: float
    low: float
    high: float
    log: bool

    def x(self, step: float) -> float:
        return LEFT + (step - self.first) / (self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        shown = math.log10(value) if self.log else value
        return HEIGHT - BOTTOM - (shown - self.low) / (self.high - self.low) * (HEIGHT - TOP - BOTTOM)


def svg_of(
    curves: Sequence[Curve],
    label: str,
    *,
    log: bool = False,
    legend: Sequence[tuple[str, str]] = (),
    steps: str = "step",
) -> Markup:
    """The drawing with a legend of (name, colour) under it, or an empty string when no curve has a point.

    ``steps`` is the title of the axis.
    """
    known = [curve for curve in curves if len(curve.steps)]
    if not known:
        return Markup("")
    frame = _frame(known, log=log)
    height = HEIGHT + 18 * math.ceil(len(legend) / 4)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{escape(label)}" font-family="system-ui, sans-serif" font-size="11">'
    ]
    parts += _axes(frame, steps)
    for curve in known:
        parts += _line(curve, frame)
        parts += _marks(curve, frame)
    for number, (name, colour) in enumerate(legend):
        x, y = LEFT + number % 4 * 160, HEIGHT + 10 + 18 * (number // 4)
        parts.append(
            f'<path d="M{x} {y - 4}h18" stroke="{colour}" stroke-width="3"/>'
            f'<text x="{x + 24}" y="{y}" fill="#1b2330">{escape(name[:24])}</text>'
        )
    parts.append("</svg>")
    return Markup("".join(parts))  # noqa: S704 - figures, and texts escaped one by one


def _frame(curves: Sequence[Curve], *, log: bool) -> _Frame:
    values = np.concatenate([curve.values for curve in curves])
    finite = values[np.isfinite(values)]
    log = log and bool((finite > 0).any())
    shown = np.log10(finite[finite > 0]) if log else finite
    low, high = (float(shown.min()), float(shown.max())) if len(shown) else (0.0, 1.0)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    steps = [float(step) for curve in curves for step in (curve.steps[0], curve.steps[-1])]
    first, last = min(steps), max(steps)
    return _Frame(first=first, last=last if last > first else first + 1, low=low - room, high=high + room, log=log)


def _axes(frame: _Frame, steps: str) -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        level = frame.low + share * (frame.high - frame.low)
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        text = f"{10**level:.3g}" if frame.log else f"{level:.4g}"
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dfe3ea"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#566173">{text}</text>'
        )
        step = frame.first + share * (frame.last - frame.first)
        parts.append(
            f'<text x="{frame.x(step):.1f}" y="{HEIGHT - 14}" text-anchor="middle" fill="#566173">{step:,.0f}</text>'
        )
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 1}" text-anchor="end" fill="#566173">{escape(steps)}</text>')
    return parts


def _line(curve: Curve, frame: _Frame) -> list[str]:
    pieces: list[str] = []
    pen = "M"
    for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
        if not math.isfinite(value) or (frame.log and value <= 0):
            pen = "M"
            continue
        pieces.append(f"{pen}{frame.x(step):.1f} {frame.y(value):.1f}")
        pen = "L"
    dash = f' stroke-dasharray="{escape(curve.dash)}"' if curve.dash != "none" else ""
    title = f"<title>{escape(curve.label)}</title>"
    if len(pieces) == 1:
        x, y = pieces[0][1:].split()
        return [f'<circle cx="{x}" cy="{y}" r="3" fill="{curve.colour}">{title}</circle>']
    path = f'<path d="{"".join(pieces)}" fill="none" stroke="{curve.colour}" stroke-width="1.5"{dash}>{title}</path>'
    return [path] if pieces else []


def _marks(curve: Curve, frame: _Frame) -> list[str]:
    kinds = {"NaN": np.isnan(curve.values), "+∞": np.isposinf(curve.values), "−∞": np.isneginf(curve.values)}
    parts = []
    for kind, found in kinds.items():
        for step in curve.steps[found][:MAX_MARKS].tolist():
            y = TOP + 6 if kind == "+∞" else HEIGHT - BOTTOM - 2
            parts.append(
                f'<text x="{frame.x(step):.1f}" y="{y}" text-anchor="middle" fill="{curve.colour}">{MARKS[kind]}'
                f"<title>{kind} at step {step}: {escape(curve.label)}</title></text>"
            )
    return parts


def notes_of(curves: Sequence[Curve], *, log: bool = False) -> list[str]:
    """What a reader must know beside the drawing: what is not finite, and what a log axis cannot show."""
    notes = []
    for curve in curves:
        wrong = ~np.isfinite(curve.values)
        if wrong.any():
            first = int(curve.steps[wrong][0])
            notes.append(f"{curve.label}: {'NaN' if np.isnan(curve.values).any() else '∞'} since step {first}")
    hidden = sum(int((curve.values <= 0).sum()) for curve in curves) if log else 0
    if hidden:
        notes.append(f"{hidden} values of zero or below cannot be drawn on the log scale")
    return notes
