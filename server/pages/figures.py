"""How charts look: Plotly layouts and trace styles, decided here and tested here; JavaScript only adds points."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from amp_core.verdict.sentences import metric_label
from server.pages.colours import Style

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", Arial, sans-serif'
LABELS = 72  # pixels for a title and labels of seven digits: measuring them would draw every axis several times
THEMES: dict[str, dict[str, str]] = {
    "light": {"text": "#566173", "strong": "#1b2330", "grid": "#e6e9ef", "line": "#c3cad6", "hover": "#ffffff"},
    "dark": {"text": "#9ba8ba", "strong": "#e7ecf3", "grid": "#263040", "line": "#3c4959", "hover": "#202935"},
}
# Constant while a run lasts: the panel "What really ran" tells them.
UNCHARTED = {
    "perf/flops_per_step",
    "memory/weights_bytes",
    "memory/gradients_bytes",
    "memory/optimizer_bytes",
    "memory/saved_for_backward_bytes",
    "memory/saved_weight_copies_bytes",
}
CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "responsive": True,
    "scrollZoom": False,
    "doubleClick": "autosize",
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "pan2d"],
}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart of a page.

    ``draw``: ``seeds`` (thin lines of runs under their mean, min–max band of the baseline) or ``runs`` (each run its
    own line). ``lane`` names a 0/1 series drawn as events under the chart on the same x axis. ``speed`` charts leave
    emulated runs out: their timing says nothing about a device. ``powers``: ticks at powers of two.
    ``also``: further series in the same chart, as means in dashes of their own. ``marks``: the
    step is marked at which a recipe left the baseline for good.
    """

    id: str
    title: str
    series: str
    unit: str
    help: str
    tick: str = "~g"
    suffix: str = ""
    log: bool = False
    zero: bool = False
    draw: str = "seeds"
    lane: str | None = None
    speed: bool = False
    powers: bool = False
    size: str = ""
    also: tuple[str, ...] = ()
    marks: bool = False

    @property
    def names(self) -> list[str]:
        return [self.series, *self.also] + ([self.lane] if self.lane else [])


def layout(chart: Chart) -> dict[str, Any]:
    """The Plotly layout of a chart without its theme; axis y is the series, y2 the lane below it."""
    axis: dict[str, Any] = {"showgrid": True, "zeroline": False, "automargin": bool(chart.lane), "fixedrange": False}
    y_axis = axis | {
        "title": {"text": chart.unit, "standoff": 8},
        "tickformat": chart.tick,
        "nticks": 6,
        "ticksuffix": chart.suffix,
    }
    if chart.log:
        y_axis |= {"type": "log"}
    if chart.zero:
        y_axis["rangemode"] = "tozero"
    figure: dict[str, Any] = {
        "margin": {"l": 56 if chart.lane else LABELS, "r": LABELS if chart.also else 12, "t": 10, "b": 42},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": "zoom",
        "uirevision": "keep",
        "font": {"family": FONT, "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": axis
        | {
            "title": {"text": "step", "standoff": 6},
            "tickformat": "~s",
            "nticks": 7,
            "tickangle": 0,
            "rangemode": "tozero",
        },
        "yaxis": y_axis,
    }
    if chart.lane:
        y_axis["domain"] = [0.36, 1.0]
        figure["yaxis2"] = axis | {"domain": [0.0, 0.24], "fixedrange": True, "showgrid": False, "type": "category"}
        figure["xaxis"]["anchor"] = "y2"
    if chart.also:
        figure["yaxis4"] = axis | {
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
            "title": {"text": ", ".join(chart.also), "standoff": 8},
            "tickformat": ".3~g",
            "nticks": 6,
        }
    return figure


def line_style(style: Style) -> dict[str, Any]:
    """How the traces of one recipe look: colours by theme, dash, widths of mean and seed lines."""
    return {
        "slot": style.slot,
        "colour": {"light": style.light, "dark": style.dark},
        "dash": style.dash,
        "mean_width": 2.4,
        "seed_width": 1.0,
        "seed_opacity": 0.38,
        "band_opacity": 0.16,
    }


def describe(charts: list[Chart], step_title: str = "step") -> list[dict[str, Any]]:
    """The charts as the page's script reads them; ``step_title`` says what an axis of steps counts."""
    described = [asdict(chart) | {"names": chart.names, "layout": layout(chart)} for chart in charts]
    for one in described:
        one["layout"]["xaxis"]["title"]["text"] = step_title
    return described


LOSS = Chart(
    id="loss",
    title="Training loss",
    series="train/loss",
    unit="loss",
    marks=True,
    help="The loss of each training step, before scaling.",
)
SCALE = Chart(
    id="scale",
    title="Loss scale and skipped steps",
    series="amp/loss_scale",
    unit="loss scale",
    log=True,
    powers=True,
    lane="amp/skipped",
    size="lane",
    help="The factor on the loss. Each mark in the lane below is a step skipped for an overflow; none is left out.",
)
GRADIENT = Chart(
    id="gradient",
    title="Gradient norm",
    series="grad/norm",
    unit="L2 norm, unscaled",
    log=True,
    help="The norm of all gradients after unscaling, before the optimizer step.",
)
UNDERFLOW = Chart(
    id="underflow",
    title="Gradients lost to underflow",
    series="grad/underflow_fraction",
    unit="share of elements",
    tick="~%",
    zero=True,
    help="Share of gradient elements, nonzero in FP32, that become zero in the run's format. Sampled.",
)
THROUGHPUT = Chart(
    id="throughput",
    title="Throughput",
    series="perf/samples_per_s",
    unit="samples/s",
    tick="~s",
    zero=True,
    speed=True,
    help="Samples per second while training. The speed ratio of the scorecard comes from separate benchmark runs.",
)
MEMORY = Chart(
    id="memory",
    title="Process memory",
    series="memory/process_bytes",
    unit="resident",
    tick="~s",
    suffix="B",
    zero=True,
    speed=True,
    help="Resident memory of the run's process. Activation bytes saved for backward are in the scorecard.",
)


def evaluation(metric: str, label: str, unit: str) -> Chart:
    """The chart of the primary metric over the evaluations."""
    return Chart(
        id="primary",
        title=f"{label} on the evaluation data",
        series=f"eval/{metric}",
        unit=f"{label}, {unit}" if unit else label,
        size="tall",
        help="The primary metric at each evaluation. The last one decides the verdict.",
    )


def experiment_charts() -> list[Chart]:
    """The charts of an experiment below its findings, in reading order."""
    return [LOSS, SCALE, GRADIENT, UNDERFLOW, THROUGHPUT, MEMORY]


def further_charts(names: set[str], hero: Chart) -> list[Chart]:
    """A chart for each series that an experiment's page does not show otherwise."""
    return _charts_of(names - {name for chart in [hero, *experiment_charts()] for name in chart.names})


MAX_CHOSEN, MAX_TOGETHER = 12, 4


def chosen_charts(words: Sequence[str], known: Collection[str]) -> list[Chart]:
    """The charts that an address asks for by ``show=series`` or ``show=series,series``; unknown series are left out."""
    asked = [tuple(dict.fromkeys(name for name in word.split(",") if name in known)) for word in words]
    return [
        Chart(
            id=f"chosen-{index}",
            title=" and ".join(names[:MAX_TOGETHER]),
            series=names[0],
            also=names[1:MAX_TOGETHER],
            unit=names[0].rsplit("/", 1)[-1],
            tick="~g",
            help=""
            if len(names) == 1
            else f"Full lines, left axis: {names[0]}; dashes, right axis: {', '.join(names[1:MAX_TOGETHER])}.",
        )
        for index, names in enumerate(dict.fromkeys(names for names in asked if names))
    ][:MAX_CHOSEN]


def _charts_of(names: set[str]) -> list[Chart]:
    return [
        Chart(id=f"series-{index}", title=name, series=name, unit=name.rsplit("/", 1)[-1], help="", tick="~s")
        for index, name in enumerate(sorted(names))
    ]


def expected_series(metric: str) -> list[str]:
    """The series that a run is about to write."""
    return [LOSS.series, f"eval/{metric}", GRADIENT.series, THROUGHPUT.series, MEMORY.series]


def run_charts(names: list[str], metric: str, unit: str, *, emulated: bool = False) -> list[Chart]:
    """The charts of one run: loss, primary metric, the other known ones that it has, then every further series.

    An emulated run has none of speed and memory.
    """
    decisive = evaluation(metric, metric_label(metric), unit)
    known = [LOSS, replace(decisive, size=""), *experiment_charts()[1:]]
    others = _charts_of(set(names) - {name for chart in known for name in chart.names} - UNCHARTED)
    shown = [chart for chart in known if chart.series in names and not (chart.speed and emulated)]
    if emulated:
        others = [chart for chart in others if not chart.series.startswith(("perf/", "memory/"))]
    return shown + others
