"""The history of a workload: trends, and the forms of its alert rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.access import Principal, submitter, viewer
from server.accounts.signin import safe_target
from server.db.tables import Experiment, Workload
from server.errors import Fault, Invalid
from server.pages import colours, trend_chart
from server.pages.render import page
from server.state import DatabaseOf
from server.trends import alerts
from server.trends.changes import changes_in
from server.trends.queries import MEASURES, Point, points_of

router = APIRouter(include_in_schema=False)
Submitter = Annotated[Principal, Depends(submitter)]
Word = Annotated[str, Query(max_length=400)]
MAX_ROWS = 60


def workload_names(session: Session) -> list[str]:
    """Workloads that have experiments, the one submitted last first."""
    query = (
        select(Workload.name)
        .join(Experiment, Experiment.workload_id == Workload.id)
        .group_by(Workload.name)
        .order_by(func.max(Experiment.created_at).desc(), Workload.name)
    )
    return list(session.scalars(query))


@router.get("/trends", dependencies=[Depends(viewer)])
def show_trends(
    request: Request,
    database: DatabaseOf,
    workload: Word = "",
    device: Word = "",
    settings: Word = "",
    recipe: Word = "",
    by: Annotated[str, Query(max_length=10)] = "order",
) -> Response:
    """One workload over its experiments; the address carries the whole view."""
    with database.read() as session:
        names = workload_names(session)
        workload = workload or (names[0] if names else "")
        points = points_of(session, workload) if workload else []
        rules, told = alerts.rules_json(session, workload), alerts.alerts_json(session, workload=workload)
    chosen = {"workload": workload, "device": device, "settings": settings, "recipe": recipe, "by": by}
    shown = [point for point in points if _fits(point, chosen)]
    changes = changes_in(shown)
    context: dict[str, Any] = {
        "names": names,
        "chosen": chosen,
        "devices": sorted({point.device for point in points}),
        "all_settings": sorted({point.settings for point in points}),
        "recipes": list(dict.fromkeys(point.recipe for point in points)),
        "styles": {point.recipe: colours.natural_style(point.recipe_json) for point in shown},
        "panels": trend_chart.panels_of(shown, changes, trend_chart.places_of(shown, by)),
        "labels": trend_chart.places_of(shown, by).labels,
        "size": {"width": trend_chart.WIDTH, "height": trend_chart.HEIGHT, "left": trend_chart.LEFT,
                 "top": trend_chart.TOP, "bottom": trend_chart.HEIGHT - trend_chart.BOTTOM},
        "changes": [change | {"text": trend_chart.change_text(change)} for change in reversed(changes)],
        "rows": _rows(shown),
        "num_rows": len(shown),
        "measures": MEASURES,
        "rules": rules,
        "alerts": told,
    }  # fmt: skip
    return page(request, "trends.html", **context)


def _fits(point: Point, chosen: dict[str, str]) -> bool:
    wanted = ((point.device, "device"), (point.settings, "settings"), (point.recipe, "recipe"))
    return all(not chosen[name] or value == chosen[name] for value, name in wanted)


def _rows(points: Sequence[Point]) -> list[dict[str, Any]]:
    """The newest points as table rows."""
    return [
        {
            "point": point,
            "style": colours.natural_style(point.recipe_json),
            **{measure: trend_chart.text_of(measure, point.value(measure)) for measure in MEASURES},
        }
        for point in reversed(points[-MAX_ROWS:])
    ]


@router.post("/trends/rules")
def create_rule(
    principal: Submitter,
    database: DatabaseOf,
    workload: Annotated[str, Form(max_length=200)] = "",
    measure: Annotated[str, Form(max_length=40)] = "",
    recipe: Annotated[str, Form(max_length=80)] = "",
    percent: Annotated[str, Form(max_length=20)] = "5",
) -> Response:
    """Watch a workload, and show its trends again."""
    try:
        worse_by = float(percent.replace(",", ".")) / 100
    except ValueError as error:
        fault = Fault(field="percent", value=percent, rule="it is no number", remedy="write a number such as 5")
        raise Invalid([fault]) from error
    with database.write() as session:
        alerts.create(session, principal, workload, measure, recipe or None, worse_by)
    return RedirectResponse(f"/trends?workload={quote(workload)}#rules", status_code=303)


@router.post("/trends/rules/{rule_id}/delete")
def delete_rule(
    rule_id: int, principal: Submitter, database: DatabaseOf, back: Annotated[str, Form(max_length=2000)] = "/trends"
) -> Response:
    """Delete a rule, and show the page again."""
    with database.write() as session:
        alerts.remove(session, rule_id, principal)
    return RedirectResponse(safe_target(back), status_code=303)


@router.post("/alerts/{alert_id}/seen")
def put_alert_away(
    alert_id: int,
    principal: Submitter,  # noqa: ARG001 - declares the role
    database: DatabaseOf,
    back: Annotated[str, Form(max_length=2000)] = "/",
) -> Response:
    """Put an alert away for the team, and show the page again."""
    with database.write() as session:
        alerts.put_away(session, alert_id)
    return RedirectResponse(safe_target(back), status_code=303)
