"""Events, logs and artifacts over REST."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from amp_core.telemetry.exponents import EDGES, MIN_EXPONENT, Histogram, merged
from server.access import viewer
from server.db.json_values import spell
from server.db.tables import Artifact
from server.errors import NotFound
from server.paging import decode_cursor, encode_cursor
from server.records.artifacts import artifact_with_content, artifacts_of
from server.records.events import event_json, events_of
from server.records.exponents import ExponentSample, exponent_samples
from server.records.logs import log_end, read_log
from server.records.schemas import (
    ArtifactList,
    ArtifactOut,
    EventList,
    EventOut,
    ExponentSampleOut,
    ExponentsOut,
    LogOut,
)
from server.records.subjects import Id, find_run
from server.state import DatabaseOf

MAX_EVENTS = 1000
MAX_LOG_CHARS = 256 * 1024
PNG = b"\x89PNG\r\n\x1a\n"

router = APIRouter(prefix="/api/v1", tags=["records"], dependencies=[Depends(viewer)])


@router.get("/runs/{run_id}/events")
def list_events(
    run_id: Id,
    database: DatabaseOf,
    after: Annotated[str | None, Query(max_length=400, description="next_cursor of an earlier answer.")] = None,
    kind: Annotated[list[str] | None, Query(max_length=20, description="Repeat it for several kinds.")] = None,
    attempt: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_EVENTS)] = 200,
) -> EventList:
    """The events of a run in the order they happened, none left out; every attempt's unless one is given."""
    place = (0, 0) if after is None else decode_cursor(after, int, int)
    with database.read() as session:
        find_run(session, run_id)
        rows = events_of(
            session, run_id, after=(place[0], place[1]), kinds=kind or (), attempt=attempt, limit=limit + 1
        )
    more = len(rows) > limit
    rows = rows[:limit]
    return EventList(
        items=[EventOut.model_validate(event_json(row)) for row in rows],
        next_cursor=encode_cursor(rows[-1].attempt, rows[-1].sequence) if more else None,
    )


@router.get("/runs/{run_id}/logs")
def show_log(
    run_id: Id,
    database: DatabaseOf,
    position: Annotated[int, Query(ge=0, lt=2**62, description="Characters to leave out at the beginning.")] = 0,
    tail: Annotated[int | None, Query(ge=1, le=MAX_LOG_CHARS, description="Only the last characters.")] = None,
    attempt: Annotated[int | None, Query(ge=1, lt=2**31, description="The newest attempt when left out.")] = None,
) -> LogOut:
    """What the run wrote to stdout and stderr, in pieces; go on at next_position until it is end_position."""
    with database.read() as session:
        run = find_run(session, run_id)
        number = run.attempt if attempt is None else attempt
        end = log_end(session, run_id, number)
        start = position if tail is None else max(position, end - tail)
        piece = read_log(session, run_id, number, start, MAX_LOG_CHARS)
    return LogOut(
        run_id=run_id,
        attempt=number,
        position=piece.position,
        next_position=piece.next_position,
        end_position=end,
        text=piece.text,
    )


@router.get("/runs/{run_id}/exponents")
def show_exponents(
    run_id: Id,
    database: DatabaseOf,
    kind: Literal["activations", "gradients", "weights"] = "gradients",
    module: Annotated[str | None, Query(max_length=400, description="One module; all of them when left out.")] = None,
    step: Annotated[int | None, Query(ge=1, lt=2**62, description="One sampled step; all when left out.")] = None,
) -> ExponentsOut:
    """Histograms of exponents by step: of gradients after unscaling, of weights, or of what modules put out."""
    with database.read() as session:
        find_run(session, run_id)
        samples = exponent_samples(session, run_id, kind, step)
    modules = list(dict.fromkeys(name for sample in samples for name in sample.modules))
    if module is not None and module not in modules:
        raise NotFound(
            f"run {run_id} has no exponents of {kind} of module {module!r}"
            f"{'' if step is None else f' at step {step}'}: leave module and step out to see what it has"
        )
    return ExponentsOut(
        run_id=run_id,
        kind=kind,
        module=module,
        modules=modules,
        edges=list(EDGES),
        samples=[_bins(sample, module) for sample in samples if module is None or module in sample.modules],
    )


def _bins(sample: ExponentSample, module: str | None) -> ExponentSampleOut:
    histogram = merged(sample.modules.values()) if module is None else sample.modules[module]
    exponents, counts = histogram.by_exponent()
    return ExponentSampleOut(
        step=sample.step,
        attempt=sample.attempt,
        scale=spell(sample.scale),
        num_elements=histogram.num_elements,
        zeros=histogram.zeros,
        infinite=histogram.infinite,
        nan=histogram.nan,
        exponents=exponents,
        counts=counts,
        classes=_classes(histogram, exponents),
    )


def _classes(histogram: Histogram, exponents: list[int]) -> list[list[int]]:
    rows: list[list[int]] = histogram.finite[[exponent - MIN_EXPONENT for exponent in exponents]].tolist()
    return rows


@router.get("/runs/{run_id}/artifacts")
def list_artifacts(run_id: Id, database: DatabaseOf) -> ArtifactList:
    """The files a run made, each name from the newest attempt that has it."""
    with database.read() as session:
        find_run(session, run_id)
        return ArtifactList(items=[ArtifactOut.of(row) for row in artifacts_of(session, [run_id])])


@router.get("/artifacts/{artifact_id}", response_class=Response)
def show_artifact(artifact_id: Id, request: Request, database: DatabaseOf) -> Response:
    """The bytes of a file. Only real PNG pictures are shown in the browser, anything else is downloaded."""
    with database.read() as session:
        artifact = artifact_with_content(session, artifact_id)
        if artifact is None:
            raise NotFound(f"artifact {artifact_id} is not here: GET /api/v1/runs/{{run}}/artifacts lists a run's")
    headers = _headers(artifact)
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(artifact.content, media_type=_media_type(artifact), headers=headers)


def _media_type(artifact: Artifact) -> Literal["image/png", "application/octet-stream"]:
    """What a run says of its own file is not believed: a browser runs what it is told is HTML or SVG."""
    is_picture = artifact.media_type == "image/png" and artifact.content.startswith(PNG)
    return "image/png" if is_picture else "application/octet-stream"


def _headers(artifact: Artifact) -> dict[str, str]:
    disposition = "inline" if _media_type(artifact) == "image/png" else "attachment"
    filename = re.sub(r"[^A-Za-z0-9._-]+", "_", artifact.name).strip("._") or f"artifact-{artifact.id}"
    return {
        "Content-Disposition": f'{disposition}; filename="{filename}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
        "ETag": f'"{artifact.sha256}"',
    }
