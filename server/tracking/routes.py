"""Tracking over REST."""

from __future__ import annotations

import math
import time
from typing import Annotated

import msgspec
import numpy as np
from fastapi import APIRouter, Depends, Request, Response, status

from amp_core import events
from amp_core.errors import ProtocolError
from server.access import Principal, submitter
from server.errors import Fault, Invalid
from server.records.subjects import Id
from server.runs import queries
from server.runs.schemas import RunDetail
from server.state import DatabaseOf
from server.tracking import service
from server.tracking.schemas import ColumnsIn, SegmentIn, SegmentsOut, TrackedRunIn

FRAMES = "application/vnd.ampboard.frames"

router = APIRouter(prefix="/api/v1", tags=["tracking"])
Submitter = Annotated[Principal, Depends(submitter)]


async def raw_body(request: Request) -> bytes:
    """The body as it came."""
    return await request.body()


@router.post("/runs", status_code=status.HTTP_201_CREATED)
def begin_run(body: TrackedRunIn, response: Response, principal: Submitter, database: DatabaseOf) -> RunDetail:
    """Begin a run that is executed elsewhere. Send its points within 90 s, again and again, or it counts as lost."""
    with database.write() as session:
        run = service.begin(session, body, principal)
        detail = RunDetail.model_validate(queries.run_detail(session, run.id))
    response.headers["Location"] = f"/api/v1/runs/{detail.id}"
    return detail


@router.post(
    "/runs/{run_id}/segments",
    openapi_extra={"requestBody": {"content": {FRAMES: {}, "application/json": {"schema": {"type": "object"}}}}},
)
def add_segments(
    run_id: Id,
    request: Request,
    body: Annotated[bytes, Depends(raw_body)],
    principal: Submitter,
    database: DatabaseOf,
) -> SegmentsOut:
    """Add points to a tracked run; none at all just says that it lives. A batch may be sent again.

    The body is frames as `amp_core.events` encodes them (`application/vnd.ampboard.frames`), or JSON:
    `{"sequence": 1, "series": {"loss": {"steps": [1], "values": [0.5]}}, "state": "completed"}`, where `sequence`
    counts from 1 and `state` (completed or failed) ends the run.
    """
    is_json = request.headers.get("content-type", "").startswith("application/json")
    frames = _from_json(body) if is_json else _from_frames(body)
    with database.write() as session:
        return SegmentsOut.model_validate(service.store(session, run_id, principal, frames)._asdict())


def _from_frames(body: bytes) -> list[events.Frame]:
    frames: list[events.Frame] = []
    place = 0
    try:
        while place < len(body):
            size = int.from_bytes(body[place : place + 4], "little")
            if place + 4 + size > len(body):
                raise ProtocolError(f"frame {len(frames) + 1} is cut off")
            frames.append(events.decode_body(body[place + 4 : place + 4 + size]))
            place += 4 + size
    except ProtocolError as error:
        remedy = "send whole frames of amp_core.events, or JSON with Content-Type: application/json"
        raise Invalid([Fault(field="body", value=len(body), rule=str(error), remedy=remedy)]) from error
    return frames


def _from_json(body: bytes) -> list[events.Frame]:
    now = time.time()
    try:
        given = msgspec.json.decode(body, type=SegmentIn)
        columns = [_column(name, columns, now) for name, columns in given.series.items()]
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        remedy = 'such as {"sequence": 1, "series": {"loss": {"steps": [1], "values": [0.5]}}}'
        raise Invalid([Fault(field="body", value=len(body), rule=str(error), remedy=remedy)]) from error
    # Two sequences to a segment, so that the end has one of its own.
    frames = [events.Frame(sequence=2 * given.sequence - 1, at=now, event=events.Segment(columns=columns))]
    if given.state == "failed":
        end: events.AnyEvent = events.Failed(kind="exception", message=given.message)
    elif given.state == "completed":
        end = events.Finished(
            metrics={}, steps=0, skipped_steps=0, samples=0, lost_samples=0, train_s=math.nan, warmup_s=math.nan
        )
    else:
        return frames
    return [*frames, events.Frame(sequence=2 * given.sequence, at=now, event=end)]


def _column(name: str, given: ColumnsIn, now: float) -> events.Column:
    values = [math.nan if value is None else float(value) for value in given.values]
    times = [now] * len(given.steps) if given.times is None else given.times
    if not len(given.steps) == len(values) == len(times):
        raise ValueError(f"series {name!r} has {len(given.steps)} steps, {len(values)} values and {len(times)} times")
    return events.Column(
        name=name,
        steps=np.array(given.steps, "<i8").tobytes(),
        values=np.array(values, "<f8").tobytes(),
        times=np.array(times, "<f8").tobytes(),
    )
