"""The layer-by-layer comparison of a run: a figure of the errors by module in execution order, and its table."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Event
from server.pages.figures import FONT
from server.pages.formats import number, percent
from server.pages.render import MALFORMED, can_show, script_json

# As the run's report names its parts; colours that stay apart for colour-blind readers, shapes for everybody.
PARTS = (
    ("output", "output", "#0072b2", "circle"),
    ("output_gradient", "gradient of the output", "#e69f00", "diamond"),
    ("weight_gradient", "gradient of the weights", "#009e73", "square"),
    ("weight", "weights after the step", "#cc79a7", "cross"),
)
MAX_ROWS = 200
MAX_STEPS = 2
FLOOR = 1e-9  # what a logarithmic axis shows for no error at all


def layers_of(session: Session, run_id: int, attempt: int) -> list[dict[str, Any]]:
    """The comparisons of a run's attempt as figures and rows, the latest step first; one for each step."""
    query = (
        select(Event.payload)
        .where(Event.run_id == run_id, Event.attempt == attempt, Event.kind == "report")
        .order_by(Event.sequence)
    )
    told = [payload["content"] for payload in session.scalars(query) if payload["kind"] == "layers"]
    by_step: dict[int, dict[str, Any]] = {}
    for content in told:
        step = content.get("step")
        if isinstance(step, int) and content.get("layers"):
            by_step[step] = content
    found = [_readable(by_step[step]) for step in sorted(by_step, reverse=True)[:MAX_STEPS]]
    return [shown for shown in found if shown is not None]


def _readable(content: dict[str, Any]) -> dict[str, Any] | None:
    """What the page shows of a report, or None of one that has not our shape: a script may report what it likes."""
    try:
        shown = _shown(content)
        script_json(shown["figure"])
    except MALFORMED:
        return None
    return shown if can_show("parts/layers.html", layers=shown) else None


def _shown(content: dict[str, Any]) -> dict[str, Any]:
    rows = content["layers"][:MAX_ROWS]
    return {
        "step": content["step"],
        "dtype": content["dtype"],
        "reference": str(content["reference"]).upper(),
        "apart": content.get("horizon", 1) - 1,
        "loss": number(content["loss"], 5),
        "reference_loss": number(content["reference_loss"], 5),
        "departs": content["departs"],
        "rows": [_row(row) for row in rows],
        "figure": figure(content["step"], rows, content["departs"]),
    }


def figure(step: int, rows: list[dict[str, Any]], departs: str | None) -> dict[str, Any]:
    """Plotly traces and layout: relative error by module on a logarithmic axis, the place where numbers part marked."""
    names = [row["module"] for row in rows]
    traces = []
    for part, label, colour, symbol in PARTS:
        points = [(row["module"], _finite(row[part]["relative_error"])) for row in rows if part in row]
        traces.append(
            {
                "type": "scatter", "mode": "lines+markers", "name": label,
                "x": [name for name, _ in points], "y": [value for _, value in points],
                "marker": {"color": colour, "symbol": symbol, "size": 7}, "line": {"color": colour, "width": 1},
                "hovertemplate": "%{x}<br>" + label + ": %{y:.2e}<extra></extra>",
            }
        )  # fmt: skip
    axis = {"showgrid": True, "zeroline": False, "automargin": True}
    layout: dict[str, Any] = {
        "margin": {"l": 60, "r": 12, "t": 10, "b": 60},
        "font": {"family": FONT, "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": 1.12},
        "xaxis": axis | {"type": "category", "categoryorder": "array", "categoryarray": names, "tickangle": -40},
        "yaxis": axis | {"type": "log", "title": {"text": "relative error"}, "exponentformat": "power", "dtick": 1},
        "shapes": [],
    }
    if departs in names:
        place = names.index(departs)
        layout["shapes"] = [
            {"type": "rect", "xref": "x", "yref": "paper", "x0": place - 0.4, "x1": place + 0.4, "y0": 0, "y1": 1,
             "fillcolor": "#d55e00", "opacity": 0.18, "line": {"width": 0}}
        ]  # fmt: skip
    return {"id": f"layers-{step}", "data": traces, "layout": layout}


def _finite(value: float | str) -> float | None:
    return None if isinstance(value, str) else max(float(value), FLOOR)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    output = row.get("output") or {}
    cells = [number(row[part]["relative_error"], 2) if part in row else "–" for part, *_ in PARTS]
    return {
        "module": row["module"],
        "type": row["type"],
        "cells": cells,
        "cosine": number(output.get("cosine"), 6),
        "ulp": number(output.get("ulp"), 3),
        "max_abs": number(output.get("max_abs"), 3),
        "flushed": percent(output["flushed"]) if "flushed" in output else "–",
    }
