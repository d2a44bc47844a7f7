"""A tracked run: an inbox that `log` appends to, and the thread that empties it."""

from __future__ import annotations

import atexit
import json
import logging
import math
import platform
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from itertools import islice
from types import TracebackType
from typing import Any, Self

from amp_core.events import AnyEvent, Failed, Finished, Frame, Segment, encode_frame
from amp_core.tracking.columns import Call, columns_of
from amp_core.tracking.connection import Connection, TrackingError, Unreachable

FRAMES = "application/vnd.ampboard.frames"
SEND_S = 0.5
ALIVE_S = 20.0
RETRY_S = 2.0
FINISH_S = 60.0
MAX_BATCH_POINTS = 100_000  # 24 bytes each: below the server's limit for a body
MAX_WAITING_CALLS = 2_000_000

logger = logging.getLogger(__name__)


def begin(body: dict[str, Any], url: str | None, token: str | None) -> TrackedRun:
    """Begin a run at the server. Raises `TrackingError`."""
    connection = Connection(url, token)
    body = {"host": platform.node() or "outside", **body}
    if body.get("experiment") is None:
        body.pop("experiment", None)
    try:
        answer = connection.post("/api/v1/runs", json.dumps(body).encode(), "application/json")
    except Unreachable as error:
        raise TrackingError(f"{error}: start one with 'ampboard up', or name another by AMPBOARD_URL") from error
    return TrackedRun(connection, int(answer["id"]))


class TrackedRun:
    """A run that this process executes; use it as a context manager, and an exception ends it as failed.

    ``cancel_requested`` becomes true when somebody cancels the run: the loop decides what to do about it.
    """

    def __init__(self, connection: Connection, run_id: int) -> None:
        self.id = run_id
        self.url = f"{connection.url}/runs/{run_id}"
        self.cancel_requested = False
        self.num_dropped = 0
        self._connection = connection
        self._inbox: deque[Call] = deque()
        self._step = 0
        self._sequence = 0
        self._unsent: bytes | None = None
        self._refusal: TrackingError | None = None
        self._last: dict[str, float] = {}
        self._began = time.monotonic()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._end: AnyEvent | None = None
        self._thread = threading.Thread(target=self._run, name=f"ampboard-{run_id}", daemon=True)
        self._thread.start()
        atexit.register(_finish_at_exit, weakref.ref(self))

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Keep numbers of a step; without one, of the step after the last. Values are taken by `float`, at once."""
        if step is None:
            step = self._step + 1
        self._step = step
        point = {name: value if type(value) is float else float(value) for name, value in metrics.items()}
        if point:
            self._inbox.append((step, time.time(), point))

    def finish(self, timeout_s: float = FINISH_S) -> None:
        """Send what is left and end the run. Raises `TrackingError` when that cannot be done in time."""
        self._finish(None, timeout_s)

    def fail(self, message: str, traceback: str = "", timeout_s: float = FINISH_S) -> None:
        """End the run as failed, with a reason."""
        self._finish(Failed(kind="exception", message=message, traceback=traceback), timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self.finish()
        else:
            self.fail(f"{type(error).__name__}: {error}")

    def _finish(self, end: AnyEvent | None, timeout_s: float) -> None:
        if self._stop.is_set():
            return
        self._end = end
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout_s)
        if self._refusal is not None:
            raise self._refusal
        if self._thread.is_alive():
            raise TrackingError(
                f"run {self.id}: {len(self._inbox)} calls of log could not be sent within {timeout_s:g} s; the server "
                "will count the run as lost. Check that it can be reached"
            )

    def _run(self) -> None:
        """Send until the run has ended, whatever the server does in between."""
        spoken = time.monotonic()
        while self._refusal is None:
            stopping = self._stop.is_set()
            try:
                if self._send_waiting():
                    spoken = time.monotonic()
                elif time.monotonic() - spoken > ALIVE_S:
                    self._post(b"")
                    spoken = time.monotonic()
                if stopping and not self._inbox:
                    self._send_end()
                    return
            except Unreachable as error:
                logger.warning("run %d: %s; trying again", self.id, error)
                self._bound_inbox()
                self._wake.wait(RETRY_S)
            except TrackingError as error:
                logger.error("run %d is not recorded any more: %s", self.id, error)
                self._refusal = error
            if not stopping:
                self._wake.wait(SEND_S)

    def _send_waiting(self) -> bool:
        """Send everything in the inbox, in batches; whether there was anything."""
        sent = False
        while self._unsent is not None or self._inbox:
            if self._unsent is None:
                self._unsent = self._batch()
            self._post(self._unsent)
            self._unsent = None
            sent = True
        return sent

    def _batch(self) -> bytes:
        calls: list[Call] = []
        num_points = 0
        while self._inbox and num_points < MAX_BATCH_POINTS:
            call = self._inbox.popleft()
            calls.append(call)
            num_points += len(call[2])
        self._last |= calls[-1][2]
        return self._frame(Segment(columns=columns_of(calls)))

    def _send_end(self) -> None:
        end = self._end or Finished(
            metrics=self._last, steps=self._step, skipped_steps=0, samples=0, lost_samples=0,
            train_s=time.monotonic() - self._began, warmup_s=math.nan,
        )  # fmt: skip
        body = self._frame(end)
        while True:
            try:
                self._post(body)
                break
            except Unreachable as error:
                logger.warning("run %d: %s; trying again", self.id, error)
                time.sleep(RETRY_S)
        self._connection.close()

    def _frame(self, event: AnyEvent) -> bytes:
        self._sequence += 1
        return encode_frame(Frame(sequence=self._sequence, at=time.time(), event=event))

    def _post(self, body: bytes) -> None:
        answer = self._connection.post(f"/api/v1/runs/{self.id}/segments", body, FRAMES)
        self.cancel_requested = bool(answer.get("cancel_requested"))

    def _bound_inbox(self) -> None:
        """Memory is not without end: the oldest calls go when millions wait."""
        excess = len(self._inbox) - MAX_WAITING_CALLS
        if excess > 0:
            self.num_dropped += sum(1 for _ in islice(iter(self._inbox.popleft, None), excess))
            logger.error(
                "run %d: %d calls of log were dropped, the server is away for too long", self.id, self.num_dropped
            )


def _finish_at_exit(reference: weakref.ref[TrackedRun]) -> None:
    """End a run whose script ended without saying so; an uncaught exception is its failure."""
    run = reference()
    if run is None:
        return
    error = getattr(sys, "last_value", None)
    try:
        if isinstance(error, BaseException):
            run.fail(f"{type(error).__name__}: {error}")
        else:
            run.finish()
    except TrackingError as problem:
        logger.error("%s", problem)
