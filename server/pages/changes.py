"""A stream that only says that something in the store changed, so that pages fetch themselves again and idle else."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from functools import partial

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from sqlalchemy import func, select

from server.access import viewer
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Experiment, Run, Worker
from server.metrics.polls import polls_of
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])
POLL_S, HEARTBEAT_S = 1.0, 15.0


def fingerprint(database: Database) -> str:
    """Differs when an experiment, run or worker was added, moved on, ended or was judged."""
    with database.read() as session:
        experiments = session.execute(
            select(func.count(), func.max(Experiment.id), func.max(Experiment.ended_at), func.max(Experiment.judged_at))
        ).one()
        states = session.execute(select(Run.state, func.count()).group_by(Run.state).order_by(Run.state)).all()
        steps = session.scalar(select(func.sum(Run.step)).where(Run.state == "running"))
        workers = session.execute(select(Worker.id, Worker.state).order_by(Worker.id)).all()
    text = repr((tuple(experiments), [tuple(row) for row in states], steps, [tuple(row) for row in workers]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@router.get("/changes", response_class=StreamingResponse)
def stream_changes(request: Request, database: DatabaseOf) -> EventSourceResponse:
    """A ``change`` message whenever the store differs from what the client saw last; ``here`` gives the first mark."""
    seen = request.headers.get("last-event-id") or request.query_params.get("last_event_id") or ""
    return EventSourceResponse(_follow(request, database, seen), headers={"X-Accel-Buffering": "no"})


async def _follow(request: Request, database: Database, seen: str) -> AsyncIterator[bytes]:
    sent_at = time.monotonic()
    yield format_sse_event(retry=1000)
    while not request.app.state.stop.is_set() and not await request.is_disconnected():
        try:
            now = await polls_of(request.app).get("changes", partial(fingerprint, database))
        except StoreUnavailable:
            now = seen
        if now != seen:
            seen, first = now, not seen
            yield format_sse_event(event="here" if first else "change", data_str="{}", id=seen)
            sent_at = time.monotonic()
        elif time.monotonic() - sent_at > HEARTBEAT_S:
            yield KEEPALIVE_COMMENT
            sent_at = time.monotonic()
        await asyncio.sleep(POLL_S)
