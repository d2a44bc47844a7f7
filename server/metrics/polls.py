"""Sharing among viewers: who waits for the same thing at the same place waits for one query."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI

T = TypeVar("T")

SHARE_S = 0.1
NUM_THREADS = 8  # of their own: streams never take the threads that serve requests


class SharedPolls:
    """Runs short blocking polls in a few threads; equal keys within `SHARE_S` seconds share one result."""

    def __init__(self) -> None:
        self.num_polls = 0
        self._limiter = CapacityLimiter(NUM_THREADS)
        self._tasks: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def get(self, key: Hashable, poll: Callable[[], T]) -> T:
        """The result of ``poll`` or of an equal one that began a moment ago; exceptions are shared as well."""
        now = time.monotonic()
        began, task = self._tasks.get(key, (now - 1.0, None))
        if task is None or now - began > SHARE_S:
            self._forget(now)
            self.num_polls += 1
            task = asyncio.create_task(to_thread.run_sync(poll, limiter=self._limiter))
            task.add_done_callback(_retrieve)
            self._tasks[key] = (now, task)
        return cast(T, await asyncio.shield(task))  # a viewer that leaves does not cancel the others' poll

    def _forget(self, now: float) -> None:
        for key, (began, task) in list(self._tasks.items()):
            if task.done() and now - began > SHARE_S:
                del self._tasks[key]


def polls_of(app: FastAPI) -> SharedPolls:
    """The application's polls."""
    polls: SharedPolls | None = getattr(app.state, "stream_polls", None)
    if polls is None:
        polls = app.state.stream_polls = SharedPolls()
    return polls


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark a failure as seen, even when every viewer left before it happened."""
    if not task.cancelled():
        task.exception()
