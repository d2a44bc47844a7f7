"""Analyses over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, status

from server.access import Principal, submitter, viewer
from server.analyses import queries, service
from server.analyses.schemas import AnalysisOfRunIn, ReportOut
from server.broker.publish import ring
from server.errors import NotFound
from server.runs.queries import find_run, run_detail
from server.runs.schemas import RunDetail
from server.state import DatabaseOf, SettingsOf

router = APIRouter(prefix="/api/v1", tags=["analyses"])


@router.post("/runs/{run_id}/analyses", status_code=status.HTTP_201_CREATED)
def add_analysis(
    run_id: int,
    given: AnalysisOfRunIn,
    principal: Annotated[Principal, Depends(submitter)],
    database: DatabaseOf,
    settings: SettingsOf,
) -> RunDetail:
    """Queue an analysis of a run, in the run's experiment; its answer is that new run's report."""
    with database.write() as session:
        run = service.add_analysis(session, run_id, given, principal, settings.lease_s)
        detail = RunDetail.model_validate(run_detail(session, run.id))
    ring(settings)
    return detail


@router.get("/runs/{run_id}/report", dependencies=[Depends(viewer)])
def show_report(run_id: int, database: DatabaseOf) -> ReportOut:
    """What an analysis has found, or has found so far."""
    with database.read() as session:
        run = find_run(session, run_id)
        report = queries.newest_report(session, run_id)
    if report is None:
        raise NotFound(f"run {run_id} ({run.kind}, {run.state}) has reported nothing yet: ask again while it runs")
    return ReportOut.model_validate(report)
