"""Speed against quality in one picture: each recipe with its two intervals, the baseline at 1× and no difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from amp_core.verdict import sentences
from amp_core.verdict.evidence import Primary
from server.pages.colours import Style
from server.pages.formats import as_float, number
from server.pages.verdicts import primary_of

WIDTH, HEIGHT = 440.0, 290.0
LEFT, RIGHT, TOP, BOTTOM = 86.0, 14.0, 12.0, 42.0
FURTHEST = 3.0  # margins: a recipe beyond is drawn at the edge with an arrow, so that the others stay apart


@dataclass(frozen=True, kw_only=True)
class Point:
    """One recipe. ``gain`` is the difference of the metric in the good direction, in the margin's unit.

    ``speed`` is the ratio to the baseline; intervals are (low, high), None where there is none.
    """

    recipe: str
    slot: str
    speed: float
    speed_interval: tuple[float, float] | None
    gain: float
    gain_interval: tuple[float, float] | None
    on_front: bool = False


def tradeoff(comparison: dict[str, Any], styles: dict[str, Style]) -> dict[str, Any] | None:
    """The picture, its table, and the recipes that have no place in it; None while no recipe has one."""
    primary = primary_of(comparison["primary"])
    found = [_point(item, styles) for item in comparison["recipes"]]
    measured = [point for point in found if point is not None]
    missing = [
        {"recipe": item["recipe"], "style": styles[item["recipe"]], "reason": item["gain"]["sentence"]}
        for item, point in zip(comparison["recipes"], found, strict=True)
        if point is None
    ]
    if not measured:
        return None
    name = comparison["baseline"]["recipe"]
    baseline = Point(recipe=name, slot=styles[name].slot, speed=1.0, speed_interval=None, gain=0.0, gain_interval=None)
    points = with_front([baseline, *measured])
    margin = next(m for item in comparison["recipes"] if item["quality"] and (m := as_float(item["quality"]["margin"])))
    return {
        "svg": draw(points, margin, primary),
        "rows": [_row(point, primary) for point in points],
        "missing": missing,
        "front": sentences.recipe_listing([point.recipe for point in points if point.on_front]),
    }


def _point(item: dict[str, Any], styles: dict[str, Style]) -> Point | None:
    """None without a measured speed, or without a finite difference."""
    speed, quality = item["gain"].get("speed"), item["quality"]
    harm = as_float(quality["mean_harm"]) if quality else None
    ratio = as_float(speed["ratio"]) if speed else None
    if ratio is None or harm is None or not math.isfinite(ratio) or not math.isfinite(harm):
        return None
    bounds = quality["interval"]
    interval = None if not bounds else (-float(bounds[1]), -float(bounds[0]))
    return Point(
        recipe=item["recipe"],
        slot=styles[item["recipe"]].slot,
        speed=ratio,
        speed_interval=(float(speed["interval"][0]), float(speed["interval"][1])),
        gain=-harm,
        gain_interval=interval,
    )


def with_front(points: Sequence[Point]) -> list[Point]:
    """The points with those marked that no other beats in speed without losing quality (the Pareto front)."""

    def beaten(one: Point) -> bool:
        return any(
            other.speed >= one.speed and other.gain >= one.gain and (other.speed > one.speed or other.gain > one.gain)
            for other in points
        )

    return [
        Point(**{field: getattr(one, field) for field in Point.__dataclass_fields__} | {"on_front": not beaten(one)})
        for one in points
    ]


class Axis:
    """A linear scale from values to pixels over a padded range."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        room = (high - low or abs(high) or 1.0) * 0.12
        self.low, self.high = low - room, high + room
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)

    def inside(self, value: float) -> bool:
        return self.low <= value <= self.high

    def ticks(self, num: int) -> list[float]:
        """At most about ``num`` round values inside the range."""
        raw = (self.high - self.low) / num
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
        first = math.ceil(self.low / step)
        return [round(index * step, 12) for index in range(first, math.floor(self.high / step) + 1)]


def axes(points: Sequence[Point], margin: float) -> tuple[Axis, Axis]:
    """x: speed with 1× inside; y: difference with zero and the margin inside, and nothing beyond three margins."""
    speeds = [value for point in points for value in (point.speed, *(point.speed_interval or ()))]
    gains = [0.0, -margin, margin / 2]
    gains += [value for point in points for value in (point.gain, *(point.gain_interval or ()))]
    finite = [value for value in gains if math.isfinite(value)]
    low, high = max(min(finite), -FURTHEST * margin), min(max(finite), FURTHEST * margin)
    return Axis(min(speeds), max(speeds), LEFT, WIDTH - RIGHT), Axis(low, high, HEIGHT - BOTTOM, TOP)


def draw(points: Sequence[Point], margin: float, primary: Primary) -> Markup:
    """The picture as SVG; colours come from the slot classes, words are also in the table behind it."""
    x, y = axes(points, margin)
    label = "; ".join(describe(point, primary) for point in points)
    parts = [*_frame(x, y, margin, primary), *_front(points, x, y)]
    taken: list[tuple[float, float]] = []
    for point in points:
        parts += _marks(point, x, y)
        parts.append(_name(point, x, y, taken))
    return Markup(
        '<svg class="tradeoff" viewBox="0 0 {} {}" role="img" aria-label="Speed against {}: {}">{}</svg>'
    ).format(int(WIDTH), int(HEIGHT), sentences.metric_label(primary.metric), label, Markup("").join(parts))


def describe(point: Point, primary: Primary) -> str:
    """``bf16-mixed: 1.62× the speed, PSNR −0.04 dB``."""
    difference = sentences.signed(primary, -point.gain)
    return f"{point.recipe}: {number(point.speed, 3)}× the speed, {sentences.metric_label(primary.metric)} {difference}"


def _frame(x: Axis, y: Axis, margin: float, primary: Primary) -> list[Markup]:
    """Grid, ticks, the margin's side, titles."""
    bottom, edge = HEIGHT - BOTTOM, y.at(-margin)
    parts = [
        Markup('<rect class="beyond" x="{}" y="{}" width="{}" height="{}"/>').format(
            LEFT, edge, WIDTH - RIGHT - LEFT, round(bottom - edge, 1)
        )
    ]
    for value in x.ticks(5):
        parts.append(
            Markup('<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(x.at(value), TOP, bottom)
        )
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{}×</text>').format(x.at(value), bottom + 16, f"{value:g}")
        )
    for value in y.ticks(6):
        parts.append(
            Markup('<line class="grid" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>').format(LEFT, WIDTH - RIGHT, y.at(value))
        )
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
                LEFT - 6, y.at(value) + 4, tick_text(primary, value)
            )
        )
    parts += [
        Markup('<line class="margin" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>').format(LEFT, WIDTH - RIGHT, edge),
        Markup('<text class="bad" x="{}" y="{}" text-anchor="end">beyond the margin</text>').format(
            WIDTH - RIGHT - 4, edge + 13
        ),
        Markup('<text class="title" x="{}" y="{}" text-anchor="middle">speed, faster to the right</text>').format(
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6
        ),
        Markup('<text class="title" transform="translate(12 {}) rotate(-90)" text-anchor="middle">{}</text>').format(
            (TOP + bottom) / 2, f"{sentences.metric_label(primary.metric)}, better upwards"
        ),
    ]
    return parts


def tick_text(primary: Primary, gain: float) -> str:
    """A tick of the difference in the metric's own direction, percentage points by their short sign."""
    return sentences.signed(primary, -gain).replace(" percentage points", " pp")


def _front(points: Sequence[Point], x: Axis, y: Axis) -> list[Markup]:
    """The stepped line along the points that nothing beats."""
    front = sorted((point for point in points if point.on_front), key=lambda point: point.speed)
    if len(front) < 2:
        return []
    path = f"M{x.at(front[0].speed)} {y.at(front[0].gain)}"
    path += "".join(f"V{y.at(point.gain)}H{x.at(point.speed)}" for point in front[1:])
    return [Markup('<path class="front" d="{}"/>').format(path)]


def _marks(point: Point, x: Axis, y: Axis) -> list[Markup]:
    """Both error bars, and the dot or, beyond the picture, an arrow at its edge."""
    at_x, at_y = x.at(point.speed), y.at(point.gain)
    parts = []
    if point.speed_interval is not None:
        low, high = (x.at(end) for end in point.speed_interval)
        parts.append(Markup('<line class="bar" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>').format(low, high, at_y))
    if point.gain_interval is not None and all(math.isfinite(end) for end in point.gain_interval):
        low, high = (y.at(end) for end in point.gain_interval)
        parts.append(Markup('<line class="bar" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(at_x, low, high))
    if y.inside(point.gain):
        parts.append(Markup('<circle class="dot" cx="{}" cy="{}" r="5"/>').format(at_x, at_y))
    else:
        turn = 1 if point.gain < y.low else -1
        parts.append(Markup('<path class="dot" d="M{} {}l-6 {}h12z"/>').format(at_x, at_y + 0.0, -9 * turn))
    return [Markup('<g class="slot-{}">{}</g>').format(point.slot, Markup("").join(parts))]


def _name(point: Point, x: Axis, y: Axis, taken: list[tuple[float, float]]) -> Markup:
    """The recipe's name beside its dot, moved down until it covers no other name."""
    at_x, at_y = x.at(point.speed), y.at(point.gain) - 9
    to_left = at_x > (LEFT + WIDTH) / 2
    while any(abs(at_y - other_y) < 14 and abs(at_x - other_x) < 150 for other_x, other_y in taken):
        at_y += 14
    at_y = max(TOP + 10, at_y)
    taken.append((at_x, at_y))
    short = point.recipe if len(point.recipe) <= 30 else f"{point.recipe[:17]}…{point.recipe[-12:]}"
    return Markup('<text class="name" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        at_x - 9 if to_left else at_x + 9, round(at_y, 1), "end" if to_left else "start", short
    )


def _row(point: Point, primary: Primary) -> dict[str, str]:
    """The figures behind the picture."""
    speed = f"{number(point.speed, 3)}×"
    if point.speed_interval is not None:
        low, high = point.speed_interval
        speed += f" ({number(low, 3)} to {number(high, 3)})"
    quality = sentences.signed(primary, -point.gain)
    if point.gain_interval is not None:
        better, worse = point.gain_interval[1], point.gain_interval[0]
        quality += f" ({sentences.signed_interval(primary, -better, -worse)})"
    return {
        "recipe": point.recipe,
        "speed": speed,
        "quality": quality,
        "front": "no other is both faster and better" if point.on_front else "",
    }
