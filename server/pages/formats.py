"""How figures, times and names are written on the pages: the Jinja filters."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

_MINUS = "−"
_BYTES = ("B", "kB", "MB", "GB", "TB")


def as_float(value: object) -> float | None:
    """A figure from JSON, where non-finite ones are spelled as strings; None when it is absent or no figure."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def number(value: object, digits: int = 4) -> str:
    """A figure in ``digits`` significant digits, with a real minus; NaN and ∞ by name; a dash when there is none.

    Between 1e-4 and 1e-3 six decimals are all, which may be a digit less.
    """
    figure = as_float(value)
    if figure is None:
        return "–"
    if math.isnan(figure):
        return "NaN"
    if math.isinf(figure):
        return "+∞" if figure > 0 else f"{_MINUS}∞"
    if figure == 0:
        return "0"
    if figure == int(figure) and abs(figure) < 1e7:
        text = f"{int(figure):,}"
    elif 1e-4 <= abs(figure) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(figure))))
        text = f"{figure:.{min(decimals, 6)}f}"
    else:
        mantissa, exponent = f"{figure:.{digits - 1}e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", _MINUS)


def signed(value: object, digits: int = 3) -> str:
    """A difference with its sign."""
    figure = as_float(value)
    text = number(value, digits)
    return f"+{text}" if figure is not None and figure > 0 and not text.startswith("+") else text


def percent(value: object, decimals: int = 1) -> str:
    """A fraction as a percentage."""
    figure = as_float(value)
    return "–" if figure is None or not math.isfinite(figure) else f"{100 * figure:.{decimals}f} %"


def size(value: object) -> str:
    """Bytes in decimal units: 6.5 GB."""
    figure = as_float(value)
    if figure is None or not math.isfinite(figure):
        return "–"
    unit = 0
    while abs(figure) >= 1000 and unit < len(_BYTES) - 1:
        figure /= 1000
        unit += 1
    return f"{figure:.0f} {_BYTES[unit]}" if unit == 0 or abs(figure) >= 100 else f"{figure:.1f} {_BYTES[unit]}"


def duration(seconds: object) -> str:
    """A time span by its two largest units: 48 s, 3 min 20 s, 2 h 5 min."""
    figure = as_float(seconds)
    if figure is None or not math.isfinite(figure) or figure < 0:
        return "–"
    if figure < 1:
        return f"{1000 * figure:.0f} ms"
    if figure < 10:
        return f"{figure:.1f} s"
    whole = round(figure)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def moment(value: object) -> datetime | None:
    """A time from a row or from JSON."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and value:
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            return None
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return None


def ago(value: object, now: datetime | None = None) -> Markup:
    """How long ago, in a `<time>` element that carries the exact moment."""
    at = moment(value)
    if at is None:
        return Markup("–")
    words = _coarse(((now or datetime.now(UTC)) - at).total_seconds())
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"), words
    )


def until(value: object, now: datetime | None = None) -> Markup:
    """In how long, in a `<time>` element that carries the exact moment."""
    at = moment(value)
    if at is None:
        return Markup("–")
    seconds = (at - (now or datetime.now(UTC))).total_seconds()
    words = "next" if seconds < 5 else f"in about {duration(seconds)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"), words
    )


def _coarse(seconds: float) -> str:
    if seconds < 5:
        return "just now"
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (math.inf, 86400, "d")):
        if seconds < limit:
            return f"{int(seconds // unit)} {name} ago"
    return "–"


def between(start: object, end: object, now: datetime | None = None) -> str:
    """The time from start to end, or to now while it has not ended."""
    first, last = moment(start), moment(end)
    if first is None:
        return "–"
    return duration(((last or now or datetime.now(UTC)) - first).total_seconds())


def middle(name: object, length: int = 40) -> Markup:
    """A long name cut in the middle, keeping both ends; the whole name is in the title and for screen readers."""
    text = str(name)
    if len(text) <= length:
        return escape(text)
    head = (length - 1) * 3 // 5
    short = f"{text[:head]}…{text[-(length - 1 - head) :]}"
    return Markup('<span title="{}">{}</span>').format(text, short)


_NAMES = re.compile(r"\b(?:32-true|bf16-mixed|16-mixed|bf16-true|16-true|tf32|fp8-mixed)\b")


def steady(sentence: str) -> Markup:
    """A sentence in which the names of precisions are never broken at their hyphen."""
    return Markup(_NAMES.sub(lambda found: f'<span class="nowrap">{found.group()}</span>', str(escape(sentence))))  # noqa: S704 - escaped


FILTERS: dict[str, Any] = {
    "number": number,
    "signed": signed,
    "percent": percent,
    "size": size,
    "duration": duration,
    "ago": ago,
    "until": until,
    "between": between,
    "middle": middle,
    "steady": steady,
}
