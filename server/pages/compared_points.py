"""What the charts of a comparison read: points of any runs, less a pinned one where asked, and their stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import EventSourceResponse

from server.access import viewer
from server.diff.queries import find_runs, ids_of
from server.metrics.routes import split_names
from server.metrics.stream import ResumePlace, stream_runs
from server.pages.points import Asked, answer, points_of
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])
Minus = Annotated[
    str, Query(max_length=2000, description="Run numbers with commas: their mean is taken off each curve.")
]


@router.get("/compare/{run_ids}/points")
def compared_points(run_ids: str, request: Request, database: DatabaseOf, asked: Asked, minus: Minus = "") -> Response:
    """Series of the compared runs, for one chart."""
    with database.read() as session:
        found = find_runs(session, ids_of("runs", run_ids[:2000]))
        pinned = [run.id for run in find_runs(session, ids_of("minus", minus))]
        told = points_of(session, found, asked, minus=pinned)
    return answer(request, told)


@router.get("/compare/{run_ids}/stream", response_class=StreamingResponse)
def compared_stream(
    run_ids: str,
    request: Request,
    database: DatabaseOf,
    place: ResumePlace,
    series: Annotated[str, Query(max_length=10_000)] = "",
) -> EventSourceResponse:
    """Follow the compared runs until the last has ended."""
    with database.read() as session:
        found = [run.id for run in find_runs(session, ids_of("runs", run_ids[:2000]))]
    return stream_runs(request, database, found, split_names("series", series), place)
