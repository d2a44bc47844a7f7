"""Server-sent events: a run or an experiment as it goes, resumable at any message.

The streams are async generators that hold no session and no thread while they wait; each poll is one short
transaction, shared by the viewers at the same place. History and live view are the same query: a client that begins
without a place gets everything from the start.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from functools import partial
from threading import Event
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from server.access import viewer
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.metrics.cursors import parse_experiment_cursor, parse_run_cursor, spell_experiment_cursor
from server.metrics.experiment_stream import ExperimentNews, experiment_news
from server.metrics.polls import polls_of
from server.metrics.routes import split_names
from server.metrics.run_stream import message, run_news
from server.metrics.runs_stream import runs_news
from server.records.subjects import Id, find_experiment, find_run
from server.state import DatabaseOf

POLL_S = 0.25
IDLE_POLL_S = 0.5  # nothing runs: only a change of state can come
AWAY_POLL_S = 1.0
HEARTBEAT_S = 15.0
RETRY_MS = 1000
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

logger = logging.getLogger(__name__)
router = APIRouter(prefix="/api/v1", tags=["streams"], dependencies=[Depends(viewer)])


async def resume_place(
    header: Annotated[str | None, Header(alias="Last-Event-ID", max_length=20_000)] = None,
    given: Annotated[
        str | None,
        Query(alias="last_event_id", max_length=20_000, description="Where to begin; a Last-Event-ID header wins."),
    ] = None,
) -> str | None:
    """The place a client resumes from: browsers send the header when they connect again, pages the parameter."""
    return header or given


ResumePlace = Annotated[str | None, Depends(resume_place)]


class News(Protocol):
    """What a poll of either kind of stream says."""

    @property
    def messages(self) -> list[bytes]: ...
    @property
    def state(self) -> bytes: ...
    @property
    def active(self) -> bool: ...
    @property
    def more(self) -> bool: ...
    @property
    def ended(self) -> bool: ...


Poll = Callable[[], Awaitable[tuple[News | None, str]]]  # what is new, and the place after it
ReadSeveral = Callable[..., ExperimentNews | None]  # called with the cursor and the runs that are settled


@router.get("/runs/{run_id}/stream", response_class=StreamingResponse)
def stream_run(run_id: Id, request: Request, database: DatabaseOf, place: ResumePlace) -> EventSourceResponse:
    """Follow a run: `segment`, `event`, `log` and `run` messages, then `end`. Ids are attempt.sequence.logposition."""
    cursor = parse_run_cursor(place)
    with database.read() as session:
        find_run(session, run_id)

    async def poll() -> tuple[News | None, str]:
        nonlocal cursor
        news = await polls_of(request.app).get(("run", run_id, cursor), partial(run_news, database, run_id, cursor))
        cursor = cursor if news is None else news.cursor
        return news, str(cursor)

    return EventSourceResponse(follow(request, "run", poll), headers=_HEADERS)


@router.get("/experiments/{experiment_id}/stream", response_class=StreamingResponse)
def stream_experiment(
    experiment_id: Id,
    request: Request,
    database: DatabaseOf,
    place: ResumePlace,
    series: Annotated[str, Query(max_length=10_000, description="Series to send points of, with commas.")] = "",
) -> EventSourceResponse:
    """Follow an experiment: `points` of the series asked for and `experiment` messages, then `end` once judged."""
    names = tuple(split_names("series", series))
    with database.read() as session:
        find_experiment(session, experiment_id)
    read = partial(experiment_news, database, experiment_id, names)
    return _stream_several(request, "experiment", (experiment_id, names), read, place)


def stream_runs(
    request: Request, database: Database, run_ids: Sequence[int], names: Sequence[str], place: str | None
) -> EventSourceResponse:
    """Follow runs of any experiments, for a page's route: `points` of the series and `runs`, then `end` after the last.

    Raises `Invalid` for a place that is none.
    """
    asked, series = tuple(run_ids), tuple(names)
    return _stream_several(request, "runs", (asked, series), partial(runs_news, database, asked, series), place)


def _stream_several(
    request: Request, kind: str, asked: tuple[Hashable, ...], read: ReadSeveral, place: str | None
) -> EventSourceResponse:
    """Follow several runs by ``read``, whose polls all that ask for the same share."""
    cursor, settled = parse_experiment_cursor(place), frozenset[int]()

    async def poll() -> tuple[News | None, str]:
        nonlocal cursor, settled
        spelled = spell_experiment_cursor(cursor)
        news = await polls_of(request.app).get((kind, *asked, spelled, settled), partial(read, cursor, settled))
        if news is not None:
            cursor, settled, spelled = news.cursor, news.settled, spell_experiment_cursor(news.cursor)
        return news, spelled

    return EventSourceResponse(follow(request, kind, poll), headers=_HEADERS)


async def follow(request: Request, kind: str, poll: Poll) -> AsyncIterator[bytes]:
    """Messages as they come, then the state under the name ``kind`` when it changed; a comment when all is quiet.

    Ends when everything was sent, when the subject is gone, when the client leaves, and when the server stops.
    """
    stop: Event = request.app.state.stop
    shown, sent_at = b"", time.monotonic()
    yield format_sse_event(retry=RETRY_MS)
    while not stop.is_set() and not await request.is_disconnected():
        try:
            news, place = await poll()
        except StoreUnavailable as error:
            logger.warning("stream of %s waits for the store: %s", request.url.path, error)
            await asyncio.sleep(AWAY_POLL_S)
            continue
        if news is None:
            return
        batch = news.messages
        if news.state != shown and not news.more:
            shown = news.state
            batch = [*batch, message(kind, shown, place)]
        if news.ended:
            batch = [*batch, message("end", {}, place)]
        if batch or time.monotonic() - sent_at > HEARTBEAT_S:
            yield b"".join(batch) or KEEPALIVE_COMMENT
            sent_at = time.monotonic()
        if news.ended:
            return
        if not news.more:
            await asyncio.sleep(POLL_S if news.active else IDLE_POLL_S)
