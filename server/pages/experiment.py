"""The experiment page: findings first, then verdicts, scorecard, pictures, curves, runs, conditions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import Principal, submitter, viewer
from server.broker.publish import ring
from server.checkpoints.queries import space_of
from server.comparisons.service import comparison_of
from server.db.tables import Event, Run
from server.errors import NotFound
from server.experiments import queries, service
from server.metrics.cursors import experiment_cursor, spell_experiment_cursor
from server.metrics.read import MIN_POINTS
from server.pages import analyses, chart_tools, colours, costs, diagnoses, figures, notes, runs_table, verdicts
from server.pages.assets import assets
from server.pages.conditions import condition_lines
from server.pages.gallery import gallery_of
from server.pages.heat import heat_choices
from server.pages.module_table import modules_by_recipe
from server.pages.render import page
from server.pages.tradeoff import tradeoff
from server.runs.forked import step_title
from server.state import DatabaseOf, SettingsOf

router = APIRouter(include_in_schema=False)
Submitter = Annotated[Principal, Depends(submitter)]
MAX_POINTS = max(500, MIN_POINTS)
MAX_PINS = 12
ENDED = ("ended", "cancelled")
DRAWN = ("baseline", "candidate", "tracked")  # the roles of the runs whose curves are shown
IMMUTABLE_PRIVATE = "private, max-age=31536000, immutable"  # pictures belong to signed-in people


@router.get("/experiments/{experiment_id}", dependencies=[Depends(viewer)])
def show_experiment(experiment_id: int, request: Request, database: DatabaseOf) -> Response:
    """One experiment; everything on it is also in REST."""
    with database.read() as session:
        context = _context(session, experiment_id, request.query_params.getlist("show")[: figures.MAX_CHOSEN])
    return page(request, "experiment.html", **context)


def _context(session: Session, experiment_id: int, show: list[str]) -> dict[str, Any]:
    place = spell_experiment_cursor(experiment_cursor(session, experiment_id))  # the stream goes on from here
    experiment = queries.experiment_detail(session, experiment_id)
    row = queries.find_experiment(session, experiment_id)
    comparison = comparison_of(session, row)
    styles = colours.assign(experiment["recipes"])
    primary = comparison["primary"]
    results = session.execute(select(Run.id, Run.result).where(Run.experiment_id == experiment_id))
    by_id = {run_id: result for run_id, result in results}  # noqa: C416 - a mypy-checked shape
    for run in experiment["runs"]:
        run["result"] = by_id.get(run["id"])
    emulated = {item["recipe"] for item in comparison["recipes"] if item["numerics"] == "emulated"}
    cards = verdicts.cards(comparison, styles)
    hero = figures.evaluation(primary["metric"], primary["label"], primary["unit"])
    charts = figures.experiment_charts() + figures.further_charts(_tracked_series(experiment), hero)
    drawn = [run for run in experiment["runs"] if run["role"] in DRAWN]
    recorded = {name for run in drawn for name in run["metrics"]}
    charts += figures.chosen_charts(show, recorded)
    return {
        "exp": experiment,
        "diagnoses": diagnoses.findings(session, experiment_id),
        "comparison": comparison,
        "primary": primary,
        "baseline": comparison["baseline"],
        "control_sentence": (comparison["control"] or {}).get("sentence"),
        "styles": styles,
        "any_emulated": bool(emulated),
        "cards": cards,
        "next": verdicts.first_step(cards),
        "kept": space_of(session, experiment_id),
        "tradeoff": tradeoff(comparison, styles),
        "skips": costs.skips(experiment, styles),
        "memory": costs.memory(experiment, styles, emulated),
        "modules": modules_by_recipe(session, experiment, styles),
        "heats": heat_choices(session, experiment, styles),
        "hero": hero,
        "charts": charts,
        "tools": chart_tools.tools(
            drawn, recorded, show, [recipe["name"] for recipe in experiment["recipes"]][:MAX_PINS]
        ),
        "analyses": analyses.listed(session, experiment_id),
        "groups": runs_table.groups(experiment, styles, primary),
        "gallery": gallery_of(session, experiment, styles),
        "conditions": condition_lines(comparison["conditions"]),
        "note": notes.panel(session, "experiment", experiment_id),
        "data": _data(session, experiment, comparison, styles, [hero, *charts], place),
    }


def _data(
    session: Session,
    experiment: dict[str, Any],
    comparison: dict[str, Any],
    styles: dict[str, colours.Style],
    charts: list[figures.Chart],
    place: str,
) -> dict[str, Any]:
    """What the page's script needs; points come by REST and stream."""
    emulated = {item["recipe"] for item in comparison["recipes"] if item["numerics"] == "emulated"}
    return {
        "id": experiment["id"],
        "done": experiment["state"] == "cancelled" or comparison["state"] == "judged",
        "waiting": experiment["state"] not in ENDED,
        "steps": experiment["steps"],
        "place": place,
        "max_points": MAX_POINTS,
        "plotly": assets.url("plotly.min.js"),
        "themes": figures.THEMES,
        "config": figures.CONFIG,
        "charts": figures.describe(charts, step_title(experiment["fork"])),
        "groups": [
            {
                "name": recipe["name"],
                "style": figures.line_style(styles[recipe["name"]]),
                "emulated": recipe["name"] in emulated,
                "baseline": recipe["name"] == experiment["baseline"],
                "runs": [
                    chart_tools.run_of_group(run, f"seed {run['seed']}")
                    for run in experiment["runs"]
                    if run["recipe_name"] == recipe["name"] and run["role"] in DRAWN
                ],
            }
            for recipe in experiment["recipes"]
        ],
        "marks": divergence_marks(comparison),
        "skips": _skips(session, experiment["id"]),
    }


def divergence_marks(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    """The first step at which the loss of a recipe left the baseline's seeds for good, where one did."""
    found = [(item["recipe"], item.get("divergence") or {}) for item in comparison["recipes"]]
    return [
        {"recipe": recipe, "step": told["step"], "text": f"{recipe} diverges at step {told['step']:,}"}
        for recipe, told in found
        if isinstance(told.get("step"), int)
    ]


def _tracked_series(experiment: dict[str, Any]) -> set[str]:
    """The series of runs tracked from outside, which write what they like."""
    return {name for run in experiment["runs"] if run["role"] == "tracked" for name in run["metrics"]}


def _skips(session: Session, experiment_id: int) -> dict[int, list[int]]:
    """Every skipped step of every run: events are never sampled, so the lane under the loss scale is whole."""
    query = (
        select(Event.run_id, Event.step)
        .join(Run, Run.id == Event.run_id)
        .where(Run.experiment_id == experiment_id, Event.kind == "step_skipped", Event.attempt == Run.attempt)
        .order_by(Event.run_id, Event.step)
    )
    skips: dict[int, list[int]] = {}
    for run_id, step in session.execute(query):
        if step is not None:
            skips.setdefault(run_id, []).append(step)
    return skips


@router.post("/experiments/{experiment_id}/cancel")
def cancel_experiment(experiment_id: int, principal: Submitter, database: DatabaseOf) -> RedirectResponse:
    """Cancel what has not ended, and show it."""
    with database.write() as session:
        service.cancel(session, experiment_id, principal)
    return RedirectResponse(f"/experiments/{experiment_id}", status_code=303)


@router.post("/experiments/{experiment_id}/retry")
def retry_experiment(
    experiment_id: int, principal: Submitter, database: DatabaseOf, settings: SettingsOf
) -> RedirectResponse:
    """Queue the failed and cancelled runs again, and show it."""
    with database.write() as session:
        num_runs = service.retry(session, experiment_id, principal)
    ring(settings, num_runs)
    return RedirectResponse(f"/experiments/{experiment_id}", status_code=303)


@router.get("/experiments/{experiment_id}/pictures/{key}.webp", dependencies=[Depends(viewer)])
def show_pictures(experiment_id: int, key: str, database: DatabaseOf) -> Response:
    """The small pictures of the page in one file. The key names the content, so it is cached for ever."""
    with database.read() as session:
        gallery = gallery_of(session, queries.experiment_detail(session, experiment_id), {})
    if gallery is None or gallery.key != key:
        raise NotFound(f"experiment {experiment_id} has no pictures {key[:40]!r} any more: reload the page")
    return Response(gallery.sheet.content, media_type="image/webp", headers={"Cache-Control": IMMUTABLE_PRIVATE})
