"""The dot-and-whisker drawing of a scorecard: difference from the baseline with its interval, against the margin."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT, PAD = 240.0, 34.0, 8.0
_MIDDLE = 14.0


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A mean difference from the baseline, positive is better. All figures share one unit."""

    mean: float
    interval: tuple[float, float] | None
    seeds: Sequence[float]


class Scale:
    """One horizontal scale for all rows of a scorecard: left is worse, the margin and zero are always inside."""

    def __init__(self, margin: float, differences: Iterable[Difference]) -> None:
        self.margin = margin
        shown = [-margin, 0.0, margin * 0.6]
        for difference in differences:
            shown += [difference.mean, *(difference.interval or ()), *difference.seeds]
        finite = [value for value in shown if math.isfinite(value)]
        # One hopeless recipe must not shrink the others to a dot: beyond three margins an arrow stands for it.
        self.low = max(min(finite), -3 * margin)
        self.high = min(max(finite), 3 * margin)
        room = (self.high - self.low) * 0.04
        self.low, self.high = self.low - room, self.high + room

    def x(self, value: float) -> float:
        """Where a value lies in the drawing, held inside it."""
        share = (value - self.low) / (self.high - self.low)
        return round(PAD + min(1.0, max(0.0, share)) * (WIDTH - 2 * PAD), 1)

    def outside(self, value: float) -> bool:
        return value < self.low or value > self.high


def draw(scale: Scale, difference: Difference, label: str) -> Markup:
    """The drawing as SVG with ``label`` as its accessible name; colours come from the slot class around it."""
    margin, zero = scale.x(-scale.margin), scale.x(0.0)
    parts = [
        Markup('<rect class="beyond" x="0" y="2" width="{}" height="24"/>').format(margin),
        Markup('<line class="margin" x1="{0}" x2="{0}" y1="1" y2="27"/>').format(margin),
        Markup('<line class="zero" x1="{0}" x2="{0}" y1="1" y2="27"/>').format(zero),
        Markup('<text x="{}" y="34" text-anchor="middle">margin</text>').format(max(margin, 18.0)),
        Markup('<text x="{}" y="34" text-anchor="middle">0</text>').format(zero),
    ]
    parts += [
        Markup('<circle class="seed" cx="{}" cy="{}" r="2"/>').format(scale.x(seed), _MIDDLE)
        for seed in difference.seeds
        if math.isfinite(seed) and not scale.outside(seed)
    ]
    if difference.interval is not None and all(math.isfinite(end) for end in difference.interval):
        low, high = (scale.x(end) for end in difference.interval)
        parts.append(Markup('<line class="bar" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(low, high, _MIDDLE, _MIDDLE))
    parts.append(_dot(scale, difference.mean))
    return Markup(
        '<svg class="whisker" viewBox="0 0 {} {}" preserveAspectRatio="xMinYMid" role="img" aria-label="{}">{}</svg>'
    ).format(int(WIDTH), int(HEIGHT) + 2, label, Markup("").join(parts))


def _dot(scale: Scale, mean: float) -> Markup:
    """The mean; an arrow head at the edge when it lies beyond the drawing."""
    if not math.isfinite(mean):
        return Markup("")
    at = scale.x(mean)
    if not scale.outside(mean):
        return Markup('<circle class="dot" cx="{}" cy="{}" r="4.5"/>').format(at, _MIDDLE)
    tip, back = (0.5, 9.0) if mean < scale.low else (WIDTH - 0.5, WIDTH - 9.0)
    return Markup('<path class="dot" d="M{} {}L{} {}V{}z"/>').format(tip, _MIDDLE, back, _MIDDLE - 5, _MIDDLE + 5)
