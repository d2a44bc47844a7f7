"""The points of charts: the series of REST without times, to seven digits, in one compressed answer per chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.access import viewer
from server.db.tables import Run
from server.metrics.difference import difference_windows
from server.metrics.read import MIN_POINTS, windows
from server.metrics.routes import split_names
from server.pages.compression import compressed
from server.records.subjects import Id, find_experiment, find_run
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])

MAX_POINTS = 4000
DIGITS = 7  # what a float32 holds; the exact values are in REST


@dataclass(frozen=True, kw_only=True)
class Window:
    """The part of which series a chart asks for."""

    names: Annotated[str, Query(min_length=1, max_length=10_000)]
    max_points: Annotated[int, Query(ge=MIN_POINTS, le=MAX_POINTS)] = 500
    start: Annotated[int | None, Query(alias="from", ge=-(2**63), lt=2**63)] = None
    end: Annotated[int | None, Query(alias="to", ge=-(2**63), lt=2**63)] = None
    times: Annotated[bool, Query(description="With the time of each point, for axes of time.")] = False


Asked = Annotated[Window, Depends()]


@router.get("/experiments/{experiment_id}/points")
def experiment_points(experiment_id: Id, request: Request, database: DatabaseOf, asked: Asked) -> Response:
    """Series of every run of an experiment, for one chart: the whole, or the window that somebody zoomed into."""
    with database.read() as session:
        find_experiment(session, experiment_id)
        runs = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)).all()
        told = points_of(session, runs, asked)
    return answer(request, told)


@router.get("/runs/{run_id}/points")
def run_points(run_id: Id, request: Request, database: DatabaseOf, asked: Asked) -> Response:
    """Series of one run, for one chart: the whole, or the window that somebody zoomed into."""
    with database.read() as session:
        told = points_of(session, [find_run(session, run_id)], asked)
    return answer(request, told)


def points_of(
    session: Session, runs: Sequence[Run], asked: Window, *, minus: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """The points of several series of runs from any experiments; with ``minus``, less the mean of those runs."""
    ids, names = [run.id for run in runs], split_names("names", asked.names)
    start, end, most = asked.start, asked.end, asked.max_points
    if minus:
        loaded = difference_windows(session, ids, names, minus, start=start, end=end, max_points=most)
    else:
        loaded = windows(session, ids, names, start=start, end=end, max_points=most)
    return [
        {
            "run_id": run.id,
            "attempt": run.attempt,
            "series": {
                name: short(found.to_json(), times=asked.times) for name, found in loaded.get(run.id, {}).items()
            },
        }
        for run in runs
        if run.id in loaded
    ]


def short(window: dict[str, Any], *, times: bool = False) -> dict[str, Any]:
    """A window of REST as charts need it; times, where they are asked for, to the millisecond."""
    told = {
        "kind": window["kind"],
        "num_stored": window["num_stored"],
        "bin_width": window["bin_width"],
        "steps": window["steps"],
        "values": [value if isinstance(value, str) else float(f"{value:.{DIGITS}g}") for value in window["values"]],
    }
    if times:
        told["times"] = [time if isinstance(time, str) else round(time, 3) for time in window["times"]]
    return told


def answer(request: Request, runs: list[dict[str, Any]]) -> Response:
    """The points as charts read them, compressed."""
    return compressed(request, Response(msgspec.json.encode({"runs": runs}), media_type="application/json"))
