"""A report's text as a page shows it: HTML between charts, and what the charts' script needs."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from sqlalchemy.orm import Session

from server.db.tables import Run
from server.metrics.cursors import runs_cursor, spell_experiment_cursor
from server.metrics.read import MIN_POINTS
from server.metrics.run_stream import FINAL_STATES
from server.pages import figures
from server.pages.assets import assets
from server.pages.metric_text import heading_of
from server.reports.charts import ChartRuns, runs_of
from server.reports.document import ChartBlock, pieces_of


def shown(session: Session, body: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The pieces for parts/report_text.html, and the page's data with a block for each chart that can be drawn."""
    pieces: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    drawn: dict[int, Run] = {}
    for number, piece in enumerate(pieces_of(body)):
        if isinstance(piece, str):
            pieces.append({"html": Markup(piece)})  # noqa: S704 - markdown-it with HTML off
            continue
        chosen = runs_of(session, piece)
        chart = _chart(piece, number)
        told = {"fault": chosen.fault, "missing": chosen.missing}
        pieces.append({"chart": chart, **told, "groups": chosen.groups, "run_ids": chosen.run_ids})
        if not chosen.fault:
            blocks.append(_chart_data(chart, chosen))
            drawn |= {run.id: run for _, _, runs in chosen.groups for run in runs}
    goes_on = any(run.state not in FINAL_STATES for run in drawn.values())
    return pieces, {
        "plotly": assets.url("plotly.min.js"),
        "themes": figures.THEMES,
        "config": figures.CONFIG,
        "blocks": blocks,
        "place": spell_experiment_cursor(runs_cursor(session, list(drawn.values()))),
        "done": not goes_on,
        "waiting": goes_on,
    }


def followed(session: Session, body: str) -> tuple[list[int], list[str]]:
    """The runs and series of every chart that can be drawn, for a stream of their points."""
    runs: dict[int, None] = {}
    series: dict[str, None] = {}
    for piece in pieces_of(body):
        if isinstance(piece, ChartBlock) and not (chosen := runs_of(session, piece)).fault:
            runs |= dict.fromkeys(chosen.run_ids)
            series[piece.series] = None
    return list(runs), list(series)


def _chart(block: ChartBlock, number: int) -> figures.Chart:
    unit = heading_of(block.series) if block.series else ""
    tick = "~s" if block.series.startswith(("perf/", "memory/")) else "~g"
    return figures.Chart(
        id=f"block-{number}", title=block.title, series=block.series, unit=unit, help="", tick=tick, log=block.log,
        size="tall",
    )  # fmt: skip


def _chart_data(chart: figures.Chart, chosen: ChartRuns) -> dict[str, Any]:
    runs = [run for _, _, of_group in chosen.groups for run in of_group]
    return {
        "chart": figures.describe([chart], chosen.steps)[0],
        "ids": chosen.run_ids,
        "steps": max(run.steps for run in runs),
        "max_points": max(500, MIN_POINTS),
        "groups": [
            {
                "name": name,
                "style": figures.line_style(style),
                "emulated": False,
                "baseline": False,
                "runs": [{"id": run.id, "label": f"run {run.id}, seed {run.seed}"} for run in of_group],
            }
            for name, style, of_group in chosen.groups
        ],
    }
