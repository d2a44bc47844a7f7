"""Comparisons and reports over REST."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import JSONResponse
from markupsafe import Markup

from server.access import viewer
from server.comparisons import report
from server.comparisons.schemas import ComparisonOut
from server.comparisons.service import comparison_of
from server.records.diagnoses import diagnoses_of
from server.records.subjects import Id, find_experiment
from server.reports.charts import curves_of, runs_of
from server.reports.curves import notes_of, svg_of
from server.reports.document import ChartBlock
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["comparisons"], dependencies=[Depends(viewer)])

# A report is opened from the server as well as from disk: its own style element is allowed by hash, nothing else is.
REPORT_POLICY = f"default-src 'none'; style-src {report.STYLE_HASH}; base-uri 'none'; frame-ancestors 'none'"


@router.get("/experiments/{experiment_id}/comparison", response_model=ComparisonOut)
def show_comparison(experiment_id: Id, database: DatabaseOf) -> Response:
    """Verdicts and figures of every recipe against the baseline; ``so_far`` without verdicts until all runs ended."""
    return JSONResponse(_comparison(database, experiment_id)[1])


@router.get(
    "/experiments/{experiment_id}/report.{kind}",
    response_class=Response,
    responses={200: {"content": {"text/markdown": {}, "text/html": {}}, "description": "The report."}},
)
def show_report(
    experiment_id: Id,
    kind: Literal["md", "html"],
    database: DatabaseOf,
    download: Annotated[bool, Query(description="Send it as a file to save.")] = False,
) -> Response:
    """The comparison as one page to pass on: Markdown, or HTML that needs nothing else."""
    about, comparison = _comparison(database, experiment_id)
    headers = {"Content-Security-Policy": REPORT_POLICY}
    if download:
        headers["Content-Disposition"] = f'attachment; filename="ampboard-experiment-{experiment_id}.{kind}"'
    if kind == "md":
        return Response(report.markdown(about, comparison), media_type="text/markdown", headers=headers)
    curves = _curves(database, about, comparison)
    return Response(report.html(about, comparison, curves), media_type="text/html", headers=headers)


def _curves(
    database: DatabaseOf, about: report.About, comparison: dict[str, Any]
) -> list[tuple[str, Markup, list[str]]]:
    """Still drawings of the primary metric and the loss over all compared runs, as far as they fit one drawing."""
    primary = comparison["primary"]
    titles = {f"eval/{primary['metric']}": f"{primary['label']} on the evaluation data", "train/loss": "Training loss"}
    drawn = []
    with database.read() as session:
        chosen = runs_of(session, ChartBlock(experiments=(about.experiment_id,)))
        for series, title in titles.items():
            curves = curves_of(session, chosen, series) if not chosen.fault else []
            if curves:
                legend = [(name, style.light) for name, style, _ in chosen.groups]
                svg = svg_of(curves, f"{title} by step", legend=legend, steps=chosen.steps)
                drawn.append((title, svg, notes_of(curves)))
    return drawn


def _comparison(database: DatabaseOf, experiment_id: int) -> tuple[report.About, dict[str, Any]]:
    with database.read() as session:
        experiment = find_experiment(session, experiment_id)
        about = report.About(
            experiment_id=experiment.id,
            name=experiment.name,
            workload=str(experiment.plan["workload"]),
            owner=experiment.owner.name,
            created_at=experiment.created_at,
            judged_at=experiment.judged_at,
            diagnoses=[one for one in diagnoses_of(session, experiment_id) if one["severity"] == "fault"],
        )
        return about, comparison_of(session, experiment)
