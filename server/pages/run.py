"""The run page: live charts, gradients by module, events, log, configuration, environment, attempts."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session

from server.access import Principal, submitter, viewer
from server.errors import NotFound
from server.metrics.cursors import run_cursor
from server.metrics.read import MIN_POINTS, series_names
from server.pages import (
    analyses,
    chart_tools,
    colours,
    diagnoses,
    figures,
    forks,
    layers,
    notes,
    run_facts,
    what_if,
    what_ran,
)
from server.pages.assets import assets
from server.pages.conditions import condition_lines
from server.pages.pictures import MAX_TILES, pictures_of, sheet_key, sheet_of
from server.pages.render import page
from server.pages.runs_table import non_finite_text
from server.records.logs import log_end, read_log
from server.runs import queries, service
from server.runs.forked import step_title
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False)
MAX_POINTS = max(1000, MIN_POINTS)
LOG_TAIL = 64 * 1024
FINAL = ("completed", "failed", "cancelled")
PRIVATE = {"Cache-Control": "private, max-age=31536000, immutable"}


@router.get("/runs/{run_id}", dependencies=[Depends(viewer)])
def show_run(run_id: int, request: Request, database: DatabaseOf) -> Response:
    """One run; everything on it is also in REST."""
    with database.read() as session:
        context = _context(session, run_id, request.query_params.getlist("show")[: figures.MAX_CHOSEN])
    return page(request, "run.html", **context)


def _context(session: Session, run_id: int, show: list[str]) -> dict[str, Any]:
    row = queries.find_run(session, run_id)
    run = queries.run_detail(session, run_id)
    cursor = run_cursor(session, row)
    names = [item["name"] for item in series_names(session, run_id)]
    plan = row.experiment.plan
    style = (
        colours.assign(plan["recipes"]).get(run["recipe_name"]) or colours.STYLES[colours.natural_slot(run["recipe"])]
    )
    charts = _charts(run, names, plan["primary"]) + figures.chosen_charts(show, names)
    end = log_end(session, run_id, run["attempt"])
    artifacts = pictures_of(session, [run_id])[:MAX_TILES]
    events = run_facts.latest_events(session, run_id)
    tried = what_if.explorer(session, run)
    compared = layers.layers_of(session, run_id, run["attempt"])
    return {
        "run": run,
        "diagnoses": diagnoses.findings(session, row.experiment_id, run_id),
        "style": style,
        "reason": run_facts.reason_of(run),
        "non_finite": non_finite_text(run["metrics"]),
        "stats": run_facts.stats(run, plan["primary"]),
        "charts": charts,
        "tools": chart_tools.tools([run], names, show, []),
        "blocks": run_facts.blocks(session, run_id, run["attempt"]) if run["kind"] == "benchmark" else [],
        "gallery": {
            "sheet": sheet_of(session, artifacts),
            "address": f"/runs/{run_id}/pictures/{sheet_key(artifacts)}.webp",
            "artifacts": artifacts,
        }
        if artifacts
        else None,
        "numerics": run_facts.numerics(session, run_id),
        "compared_layers": compared,
        "ran": what_ran.effective_precision(session, run),
        "heat": what_ran.gradient_exponents(session, run),
        "whatif": tried,
        "analysis": analyses.panel(session, run),
        "kept": forks.kept_panel(session, run),
        "fork": run["config"].get("fork"),
        "analysis_buttons": analyses.buttons(run, row.experiment.workload),
        "events": events,
        "events_note": run_facts.events_note(session, run_id, len(events)),
        "log": read_log(session, run_id, run["attempt"], max(0, end - LOG_TAIL), 2 * LOG_TAIL).text if end else "",
        "config": condition_lines(run_facts.configuration(run)),
        "environment": condition_lines(run["environment"]),
        "attempts": run["attempts"],
        "note": notes.panel(session, "run", run_id),
        "seats": run["seats"],
        "data": _data(session, run, style, charts, str(cursor))
        | {
            "figures": [one["figure"] for one in compared],
            "whatif": {name: tried[name] for name in ("cell", "low", "high", "windows")} if tried else None,
        },
    }


def _data(
    session: Session, run: dict[str, Any], style: colours.Style, charts: list[figures.Chart], place: str
) -> dict[str, Any]:
    """What the page's script needs; points come by REST and stream."""
    group = {
        "name": run["recipe_name"],
        "style": figures.line_style(style),
        "emulated": False,
        "baseline": False,
        "runs": [chart_tools.run_of_group(run, f"seed {run['seed']}")],
    }
    return {
        "id": run["id"],
        "attempt": run["attempt"],
        "place": place,
        "done": run["state"] in FINAL,
        "waiting": run["state"] not in FINAL,
        "steps": run["steps"],
        "max_points": MAX_POINTS,
        "plotly": assets.url("plotly.min.js"),
        "themes": figures.THEMES,
        "config": figures.CONFIG,
        "charts": figures.describe(charts, step_title(run["config"].get("fork"))),
        "groups": [group],
        "skips": run_facts.skipped_steps(session, run["id"], run["attempt"]),
    }


def _charts(run: dict[str, Any], names: list[str], primary: dict[str, Any]) -> list[figures.Chart]:
    """Charts of the series it wrote; while it goes on also of those that are about to come."""
    if run["kind"] != "train":
        return []
    coming = [] if run["state"] in FINAL else figures.expected_series(primary["metric"])
    return figures.run_charts(
        list(dict.fromkeys([*names, *coming])),
        primary["metric"],
        primary.get("unit", ""),
        emulated=run["numerics"] == "emulated",
    )


@router.post("/runs/{run_id}/cancel")
def cancel_run(run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf) -> Response:
    """Cancel the run, and show it."""
    with database.write() as session:
        service.cancel(session, run_id, principal)
    return RedirectResponse(f"/runs/{run_id}", status_code=303)


@router.get("/runs/{run_id}/pictures/{key}.webp", dependencies=[Depends(viewer)])
def show_pictures(run_id: int, key: str, database: DatabaseOf) -> Response:
    """The small pictures of the page in one file. The key names the content, so it is cached for ever."""
    with database.read() as session:
        artifacts = pictures_of(session, [run_id])[:MAX_TILES]
        if not artifacts or sheet_key(artifacts) != key:
            raise NotFound(f"run {run_id} has no pictures {key[:40]!r} any more: reload the page")
        sheet = sheet_of(session, artifacts)
    return Response(sheet.content, media_type="image/webp", headers=PRIVATE)
