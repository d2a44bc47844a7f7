"""Reports: their list, reading, writing, history, and the file that opens without a server."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from fastapi.sse import EventSourceResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import Principal, submitter, viewer
from server.db.tables import Project
from server.errors import Conflict, Invalid, NotFound
from server.metrics.stream import ResumePlace, stream_runs
from server.notes.service import tags_by_key
from server.pages import notes, report_text
from server.pages.render import page
from server.reports import service
from server.reports.charts import curves_of, runs_of
from server.reports.curves import notes_of, svg_of
from server.reports.document import ChartBlock, pieces_of
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False)
Submitter = Annotated[Principal, Depends(submitter)]
FORM_BYTES = 13 * service.MAX_BODY  # forms send up to twelve bytes for a character: %F0%9F%8C%8D
Text = Annotated[str, Form(max_length=2 * service.MAX_BODY)]  # and two characters for the end of a line
Line = Annotated[str, Form(max_length=2000)]
_TEMPLATES = Path(service.__file__).parent / "templates"
_export = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined)
STYLE = (_TEMPLATES / "export.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
EXPORT_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; sandbox"
NO_PREVIEW: dict[str, Any] = {"pieces": [], "data": None}
EXAMPLE = """## What was asked

Is bf16 as good as fp32 here?

```chart
experiment: {experiment}
series: train/loss
title: How the loss falls
```

## What came out

| recipe | verdict |
|---|---|
| bf16-mixed | … |
"""


@router.get("/reports", dependencies=[Depends(viewer)])
def show_reports(
    request: Request,
    database: DatabaseOf,
    project: Annotated[str, Query(max_length=80)] = "",
    tag: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """Every report, the one changed last first."""
    with database.read() as session:
        tags = tags_by_key(session, "report")
        items = [item | {"tags": tags.get(str(item["id"]), [])} for item in service.listed(session, project or None)]
        projects = _projects(session)
    shown = [item for item in items if not tag or tag in item["tags"]]
    context: dict[str, Any] = {
        "projects": projects,
        "project": project,
        "tag": tag,
        "tags": sorted({t for i in items for t in i["tags"]}),
    }
    return page(request, "reports.html", items=shown, **context)


def _projects(session: Session) -> list[str]:
    return list(session.scalars(select(Project.name).order_by(Project.name)))


@router.get("/reports/new", dependencies=[Depends(submitter)])
def new_report(
    request: Request, database: DatabaseOf, experiment: Annotated[int | None, Query(ge=1)] = None
) -> Response:  # fmt: skip
    """The empty editor, with an example of a chart."""
    with database.read() as session:
        projects = _projects(session)
    given = {"title": "", "body": EXAMPLE.format(experiment=experiment or 1), "project": "", "version": 0, "id": None}
    return page(
        request, "report_edit.html", given=given, projects=projects, error="", theirs=None, pieces=[], data=None
    )


@router.post("/reports", form_limits={"max_part_size": FORM_BYTES})
def create_report(
    request: Request, principal: Submitter, database: DatabaseOf, title: Line = "", body: Text = "", project: Line = ""
) -> Response:
    """Keep a new report, and show it; what cannot be kept comes back in the editor."""
    try:
        with database.write() as session:
            report_id = service.create(session, principal, project, title, body).id
    except Invalid as error:
        given = {"title": title, "body": body, "project": project, "version": 0, "id": None}
        return _editor(request, database, given, str(error))
    return RedirectResponse(f"/reports/{report_id}", status_code=303)


def _editor(
    request: Request, database: DatabaseOf, given: dict[str, Any], error: str, theirs: dict[str, Any] | None = None
) -> Response:
    with database.read() as session:
        projects = _projects(session)
    status = 409 if theirs else 422
    context = {"given": given, "projects": projects, "error": error, "theirs": theirs} | NO_PREVIEW
    return page(request, "report_edit.html", status=status, **context)


@router.post("/reports/preview", dependencies=[Depends(submitter)], form_limits={"max_part_size": FORM_BYTES})
def preview_report(
    request: Request,
    database: DatabaseOf,
    title: Line = "",
    body: Text = "",
    project: Line = "",
    version: Annotated[int, Form(ge=0)] = 0,
    report: Annotated[int | None, Form(ge=1)] = None,
    over: Annotated[int | None, Form(ge=1)] = None,
) -> Response:
    """The editor with the text as it would be shown; nothing is kept.

    ``over`` is the version that was written meanwhile: its text and the warning stay until one of the texts is saved.
    """
    given = {"title": title, "body": body, "project": project, "version": version, "id": report}
    theirs, warning = None, ""
    if report is not None and over is not None:
        with database.read() as session:
            theirs = _newest(session, report)
        if theirs is not None:
            given["version"] = theirs["version"]
            warning = f"{theirs['versions'][0]['editor']} wrote version {theirs['version']} while you were writing"
    try:
        kept = service.checked_body(body)
    except Invalid as error:
        return _editor(request, database, given, str(error), theirs)
    with database.read() as session:
        projects = _projects(session)
        pieces, data = report_text.shown(session, kept)
    context: dict[str, Any] = {"pieces": pieces, "data": data, "projects": projects}
    return page(request, "report_edit.html", given=given, error=warning, theirs=theirs, **context)


def _newest(session: Session, report_id: int) -> dict[str, Any] | None:
    try:
        return service.report_json(session, report_id)
    except NotFound:  # deleted meanwhile: what was written is not lost with it
        return None


@router.get("/reports/{report_id}", dependencies=[Depends(viewer)])
def read_report(
    report_id: int, request: Request, database: DatabaseOf, version: Annotated[int | None, Query(ge=1)] = None
) -> Response:
    """A report with charts of what its runs have written until now."""
    with database.read() as session:
        report = service.report_json(session, report_id, version)
        note = notes.panel(session, "report", report_id)
        pieces, data = report_text.shown(session, report["body"])
    data["stream"] = f"/reports/{report_id}/stream?version={report['version']}"
    return page(request, "report.html", report=report, pieces=pieces, data=data, note=note)


@router.get("/reports/{report_id}/stream", dependencies=[Depends(viewer)], response_class=StreamingResponse)
def follow_report(
    report_id: int,
    request: Request,
    database: DatabaseOf,
    place: ResumePlace,
    version: Annotated[int | None, Query(ge=1)] = None,
) -> EventSourceResponse:
    """Follow the runs of a report's charts until the last has ended."""
    with database.read() as session:
        body = service.report_json(session, report_id, version)["body"]
        runs, series = report_text.followed(session, body)
    return stream_runs(request, database, runs, series, place)


@router.get("/reports/{report_id}/edit", dependencies=[Depends(submitter)])
def edit_report(report_id: int, request: Request, database: DatabaseOf) -> Response:
    """The editor on the newest version."""
    with database.read() as session:
        report = service.report_json(session, report_id)
        projects = _projects(session)
    return page(
        request, "report_edit.html", given=report, projects=projects, error="", theirs=None, pieces=[], data=None
    )


@router.post("/reports/{report_id}", form_limits={"max_part_size": FORM_BYTES})
def change_report(
    report_id: int,
    request: Request,
    principal: Submitter,
    database: DatabaseOf,
    title: Line = "",
    body: Text = "",
    version: Annotated[int, Form(ge=0)] = 0,
) -> Response:
    """Keep the next version. When somebody wrote one meanwhile, both texts are shown and nothing is lost."""
    given = {"title": title, "body": body, "version": version, "id": report_id, "project": ""}
    try:
        with database.write() as session:
            service.change(session, principal, report_id, version, title, body)
    except Invalid as error:
        return _editor(request, database, given, str(error))
    except Conflict as error:
        with database.read() as session:
            theirs = service.report_json(session, report_id)
        return _editor(request, database, given | {"version": theirs["version"]}, str(error), theirs)
    return RedirectResponse(f"/reports/{report_id}", status_code=303)


@router.post("/reports/{report_id}/delete")
def delete_report(report_id: int, principal: Submitter, database: DatabaseOf) -> Response:
    """Delete it with its versions."""
    with database.write() as session:
        service.remove(session, principal, report_id)
    return RedirectResponse("/reports", status_code=303)


@router.get("/reports/{report_id}/export.html", dependencies=[Depends(viewer)])
def export_report(report_id: int, database: DatabaseOf) -> Response:
    """The report as one HTML file with still charts: no script, no request, its style inside."""
    with database.read() as session:
        report = service.report_json(session, report_id)
        pieces = [
            {"html": Markup(piece)} if isinstance(piece, str) else _still(session, piece)  # noqa: S704 - HTML off
            for piece in pieces_of(report["body"])
        ]
    html = _export.get_template("export.html.j2").render(
        report=report,
        pieces=pieces,
        style=Markup(STYLE),  # noqa: S704 - our own file
        now=datetime.now(UTC),
    )
    answer = HTMLResponse(html)
    answer.headers["Content-Security-Policy"] = EXPORT_POLICY
    answer.headers["Content-Disposition"] = f'attachment; filename="ampboard-report-{report_id}.html"'
    return answer


def _still(session: Session, block: ChartBlock) -> dict[str, Any]:
    chosen = runs_of(session, block)
    curves = curves_of(session, chosen, block.series) if not chosen.fault else []
    fault = chosen.fault or ("" if curves else f"no run wrote {block.series}")
    return {
        "title": block.title or "Chart",
        "fault": fault,
        "svg": svg_of(curves, f"{block.title}: {block.series} by step", log=block.log, steps=chosen.steps),
        "notes": [*notes_of(curves, log=block.log), *([f"left out: {chosen.missing}"] if chosen.missing else [])],
        "legend": [(name, style.light, style.svg_dash, len(runs)) for name, style, runs in chosen.groups],
    }
