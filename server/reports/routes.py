"""Reports over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, status

from server.access import Principal, submitter, viewer
from server.records.subjects import Id
from server.reports import service
from server.reports.schemas import ReportChange, ReportIn, ReportList, ReportOut
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["reports"], dependencies=[Depends(viewer)])
Submitter = Annotated[Principal, Depends(submitter)]


@router.get("/reports")
def list_reports(database: DatabaseOf, project: Annotated[str | None, Query(max_length=80)] = None) -> ReportList:
    """Reports by their last change, the newest first, without their text."""
    with database.read() as session:
        return ReportList.model_validate({"items": service.listed(session, project)})


@router.post("/reports", status_code=status.HTTP_201_CREATED)
def create_report(body: ReportIn, principal: Submitter, database: DatabaseOf) -> ReportOut:
    """Write a report: Markdown with charts in fenced blocks."""
    with database.write() as session:
        report = service.create(session, principal, body.project, body.title, body.body)
        return ReportOut.model_validate(service.report_json(session, report.id))


@router.get("/reports/{report_id}")
def show_report_text(
    report_id: Id, database: DatabaseOf, version: Annotated[int | None, Query(ge=1)] = None
) -> ReportOut:  # fmt: skip
    """A report with the text of a version, the newest one by default."""
    with database.read() as session:
        return ReportOut.model_validate(service.report_json(session, report_id, version))


@router.put("/reports/{report_id}")
def change_report(report_id: Id, body: ReportChange, principal: Submitter, database: DatabaseOf) -> ReportOut:
    """Write the next version; 409 when somebody wrote one meanwhile."""
    with database.write() as session:
        service.change(session, principal, report_id, body.version, body.title, body.body)
        return ReportOut.model_validate(service.report_json(session, report_id))


@router.delete("/reports/{report_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_report(report_id: Id, principal: Submitter, database: DatabaseOf) -> None:
    """Delete a report of one's own, or as an admin any, with its versions."""
    with database.write() as session:
        service.remove(session, principal, report_id)
