"""A comparison as one page to pass on: Markdown, and HTML that needs nothing beside itself."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

_TEMPLATES = Path(__file__).parent / "templates"
STYLE = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
STYLE_HASH = f"'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"

_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
_LINE_BREAKS = re.compile(r"\s*[\r\n\x0b\x0c\x85\u2028\u2029]+\s*")
_PLOT_WIDTH = 560.0
_PLOT_INSET = 8.0  # room for the dot at the edge


@dataclass(frozen=True, kw_only=True)
class About:
    """What a report says of the experiment beside its comparison."""

    experiment_id: int
    name: str
    workload: str
    owner: str
    created_at: datetime
    judged_at: datetime | None
    diagnoses: Sequence[dict[str, Any]] = ()


def markdown(about: About, comparison: dict[str, Any]) -> str:
    """The report as Markdown; names and messages are escaped, so that they cannot become markup."""
    return _markdown.get_template("report.md.j2").render(about=about, comparison=comparison)


def html(about: About, comparison: dict[str, Any], curves: Sequence[tuple[str, Markup, Sequence[str]]] = ()) -> str:
    """The report as one HTML file: no script, no request, its style inside.

    ``curves`` are still drawings (title, SVG, notes), of `server.reports.curves`.
    """
    return _html.get_template("report.html.j2").render(
        about=about,
        comparison=comparison,
        style=STYLE,
        plot=interval_plot(comparison),
        worse="lower" if comparison["primary"]["higher_is_better"] else "higher",
        curves=curves,
    )


def escape_markdown(value: object) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKDOWN_SPECIAL.sub(r"\\\1", _LINE_BREAKS.sub(" ", str(value)))


def ratio(value: float | None) -> str:
    """``1.83×``, or a dash where nothing was measured."""
    return "–" if value is None else f"{value:.2f}×"


def figure(value: Any) -> str:
    """A number with four significant digits; the name of one that is not finite; a dash for none."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.5g}"


def moment(value: datetime | None) -> str:
    return "not yet" if value is None else f"{value:%Y-%m-%d %H:%M} UTC"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One recipe's interval in the plot's coordinates; ``left`` is the bad side, as on the scorecard."""

    recipe: str
    y: float
    left: float
    right: float
    middle: float
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Intervals of harm beside zero and the margin; harm grows to the left."""

    width: float
    height: float
    zero: float
    margin: float
    bars: list[Bar]


def interval_plot(comparison: dict[str, Any]) -> Plot | None:
    """Where each recipe's interval lies; None when no recipe has one. Intervals far outside are cut at the edge."""
    with_interval = [
        recipe for recipe in comparison["recipes"] if recipe["quality"] and recipe["quality"]["interval"] is not None
    ]
    if not with_interval:
        return None
    margin = float(comparison["primary"]["margin"])
    low, high = -1.5 * margin, 3.0 * margin

    def x(harm: float) -> float:
        return _PLOT_INSET + (high - min(max(harm, low), high)) / (high - low) * (_PLOT_WIDTH - 2 * _PLOT_INSET)

    bars = [
        Bar(
            recipe=recipe["recipe"],
            y=34.0 + 30.0 * index,
            left=x(float(recipe["quality"]["interval"][1])),
            right=x(float(recipe["quality"]["interval"][0])),
            middle=x(float(recipe["quality"]["mean_harm"])),
            verdict=recipe["verdict"] or "no verdict yet",
        )
        for index, recipe in enumerate(with_interval)
    ]
    return Plot(width=_PLOT_WIDTH, height=30.0 * len(bars) + 40.0, zero=x(0.0), margin=x(margin), bars=bars)


def _environment(*, autoescape: bool) -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=autoescape,  # noqa: S701 - Markdown has an escape of its own, below
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=None if autoescape else escape_markdown,
    )
    environment.filters |= {"ratio": ratio, "figure": figure, "moment": moment}
    return environment


_markdown = _environment(autoescape=False)
_html = _environment(autoescape=True)
