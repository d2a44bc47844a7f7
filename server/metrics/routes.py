"""Series over REST."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy import select

from server.access import viewer
from server.db.tables import Run
from server.errors import Fault, Invalid, NotFound
from server.metrics.cursors import experiment_cursor, run_cursor, spell_experiment_cursor
from server.metrics.read import DEFAULT_MAX_POINTS, MIN_POINTS, Window, series_names, window, windows
from server.metrics.representation import BINARY, entity_tag, is_fresh, not_modified, respond, wants_binary
from server.metrics.schemas import ExperimentSeries, SeriesList, SeriesOfRuns, SeriesWindow
from server.records.routes import router as records
from server.records.subjects import Id, find_experiment, find_run
from server.state import DatabaseOf

MAX_POINTS = 1_000_000
MAX_NAMES = 50
MAX_RUNS = 500
_STEP = 2**63

BINARY_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {BINARY: {}},
        "description": "JSON, or raw arrays when Accept names them.",
    },
    304: {"description": "The run has ended and the client holds this answer."},
}

router = APIRouter()
series = APIRouter(prefix="/api/v1", tags=["series"], dependencies=[Depends(viewer)])

Names = Annotated[str, Query(min_length=1, max_length=10_000, description="Series names, separated by commas.")]
FromStep = Annotated[int | None, Query(alias="from", ge=-_STEP, lt=_STEP, description="First step.")]
ToStep = Annotated[int | None, Query(alias="to", ge=-_STEP, lt=_STEP, description="Last step, included.")]
MaxPoints = Annotated[int, Query(ge=MIN_POINTS, le=MAX_POINTS, description="Above this, points are binned.")]


@series.get("/runs/{run_id}/series", response_model=SeriesList)
def list_series(run_id: Id, database: DatabaseOf) -> Response:
    """The names of a run's series with their counts, range, last value, minimum and maximum."""
    with database.read() as session:
        run = find_run(session, run_id)
        return _json({"items": series_names(session, run_id), "cursor": str(run_cursor(session, run))})


@series.get("/runs/{run_id}/series/{name:path}", response_model=SeriesWindow, responses=BINARY_ANSWER)
def show_series(
    run_id: Id,
    name: str,
    request: Request,
    database: DatabaseOf,
    start: FromStep = None,
    end: ToStep = None,
    max_points: MaxPoints = DEFAULT_MAX_POINTS,
) -> Response:
    """A window of a series: every stored point when they are few enough, else binned with every extreme kept.

    The answer has an ETag once the run has ended.
    """
    with database.read() as session:
        tag = entity_tag(request, [find_run(session, run_id)])
        if is_fresh(request, tag):
            return not_modified(tag)
        found = window(session, run_id, name, start, end, max_points)
        if not found.num_points and name not in {item["name"] for item in series_names(session, run_id)}:
            raise NotFound(f"run {run_id} has no series {name[:80]!r}: GET /api/v1/runs/{run_id}/series lists them")
    return respond(request, found.to_json() if not wants_binary(request) else {}, [found], tag)


@series.get("/series", response_model=SeriesOfRuns, responses=BINARY_ANSWER)
def show_series_of_runs(
    request: Request,
    database: DatabaseOf,
    runs: Annotated[str, Query(min_length=1, max_length=10_000, description="Run ids, separated by commas.")],
    names: Names,
    start: FromStep = None,
    end: ToStep = None,
    max_points: MaxPoints = 500,
) -> Response:
    """The same window of several series of any runs. Runs and series that are not there are left out."""
    run_ids, wanted = split_ids("runs", runs), split_names("names", names)
    with database.read() as session:
        rows = session.scalars(select(Run).where(Run.id.in_(run_ids)).order_by(Run.id)).all()
        tag = entity_tag(request, rows)
        if is_fresh(request, tag):
            return not_modified(tag)
        ids = [run.id for run in rows]
        loaded = windows(session, ids, wanted, start=start, end=end, max_points=max_points)
    found = [window for by_name in loaded.values() for window in by_name.values()]
    content = {} if wants_binary(request) else {"series": [window.to_json() for window in found]}
    return respond(request, content, found, tag)


@series.get("/experiments/{experiment_id}/series", response_model=ExperimentSeries, responses=BINARY_ANSWER)
def show_experiment_series(
    experiment_id: Id,
    request: Request,
    database: DatabaseOf,
    names: Names,
    max_points: MaxPoints = 500,
    after: Annotated[str | None, Query(max_length=100_000, description='Only later steps: {"<run>": step, …}.')] = None,
) -> Response:
    """The same series of every run of an experiment, for one chart."""
    wanted = split_names("names", names)
    later = _parse_after(after)
    with database.read() as session:
        find_experiment(session, experiment_id)
        runs = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)).all()
        tag = entity_tag(request, runs)
        if is_fresh(request, tag):
            return not_modified(tag)
        loaded = windows(session, [run.id for run in runs], wanted, max_points=max_points, after=later)
        cursor = spell_experiment_cursor(experiment_cursor(session, experiment_id))
    found = [window for by_name in loaded.values() for window in by_name.values()]
    items = [] if wants_binary(request) else [_run_series(run, loaded.get(run.id, {})) for run in runs]
    return respond(request, {"runs": items, "cursor": cursor}, found, tag)


def _run_series(run: Run, found: dict[str, Window]) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "recipe": run.recipe_name,
        "seed": run.seed,
        "role": run.role,
        "attempt": run.attempt,
        "series": {name: window.to_json() for name, window in found.items()},
    }


def split_ids(field: str, text: str) -> list[int]:
    """Run ids from a list with commas, each once. Raises `Invalid`."""
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    wrong = [part for part in parts if not (part.isdecimal() and part.isascii() and len(part) < 19)]
    if wrong:
        rule = "run ids are whole numbers, separated by commas"
        raise Invalid([Fault(field=field, value=wrong[0], rule=rule, remedy="such as 12,13,14")])
    if len(parts) > MAX_RUNS:
        rule = f"at most {MAX_RUNS} runs are read at once"
        raise Invalid([Fault(field=field, value=len(parts), rule=rule, remedy="ask for fewer, in several requests")])
    return [int(part) for part in parts]


def split_names(field: str, text: str) -> list[str]:
    """Series names from a list with commas, each once. Raises `Invalid`."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if len(names) > MAX_NAMES:
        rule = f"at most {MAX_NAMES} series are read at once"
        raise Invalid([Fault(field=field, value=len(names), rule=rule, remedy="ask for fewer, in several requests")])
    return names


def _parse_after(text: str | None) -> dict[int, int]:
    if text is None:
        return {}
    try:
        given = msgspec.json.decode(text, type=dict[int, int])
    except (msgspec.MsgspecError, RecursionError):
        rule = "after is a JSON object of run ids and steps"
        raise Invalid([Fault(field="after", value=text, rule=rule, remedy='such as {"12": 100, "13": 90}')]) from None
    return {run_id: max(-_STEP, min(step, _STEP - 1)) for run_id, step in given.items()}


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


router.include_router(series)
router.include_router(records)
