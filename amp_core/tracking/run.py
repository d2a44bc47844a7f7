"""A tracked run: an inbox that `log` appends to, and the thread that empties it."""

from __future__ import annotations

import atexit
import json
import logging
import math
import platform
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from itertools import islice
from operator import index, itemgetter
from time import time as now
from types import TracebackType
from typing import Any, Self

from amp_core.events import AnyEvent, Failed, Finished, Frame, Segment, encode_frame
from amp_core.tracking.columns import Call, columns_of
from amp_core.tracking.connection import Connection, TrackingError, Unreachable

FRAMES = "application/vnd.ampboard.frames"
SEND_S = 0.5
FULL_S = 0.1  # how often the thread looks whether a batch is full before its time
ALIVE_S = 20.0
RETRY_S = 2.0
FINISH_S = 60.0
MAX_BATCH_POINTS = 100_000  # 24 bytes each: below the server's limit for a body
CALLS_AT_ONCE = 256
MAX_STEP = 2**63 - 1
MAX_NAME_CHARS = 200
MAX_WAITING_CALLS = 2_000_000

_LAST = struct.Struct("d")
_VALUES = itemgetter(3)

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
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._step = 0
        self._sequence = 0
        self._unsent: bytes | None = None
        self._refusal: TrackingError | None = None
        self._last: dict[str, float] = {}
        self._began = time.monotonic()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._end: AnyEvent | None = None
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"ampboard-{run_id}", daemon=True)
        self._thread.start()
        atexit.register(_finish_at_exit, weakref.ref(self))

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Keep numbers of a step; without one, of the step after the last. Values are taken by `float`, at once."""
        if step is None:
            step = self._step + 1
        elif type(step) is not int:
            step = index(step)  # a step that is no whole number is told of here, not in the thread
        if not -MAX_STEP <= step <= MAX_STEP:
            raise ValueError(f"step {step} does not fit 64 bits: count steps from 0 or 1")
        names, values = tuple(metrics), tuple(metrics.values())
        for value in values:
            if type(value) is not float:  # numbers of other kinds, tensors too, which change later
                values = tuple(map(float, values))
                break
        self._step = step
        if values:
            # Tuples of numbers: the garbage collector soon leaves them alone, however many wait.
            self._inbox.append((step, now(), self._known.get(names) or self._checked(names), values))

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

    def _checked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names that are seen for the first time; from then on every call that has them shares one tuple."""
        for name in names:
            if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
                raise ValueError(f"{name!r} is no name of a metric: use 1 to {MAX_NAME_CHARS} printable characters")
        self._known[names] = names
        return names

    def _run(self) -> None:
        """Send until the run has ended, whatever the server does in between."""
        spoken = time.monotonic()
        while self._refusal is None:
            stopping = self._stop.is_set()
            try:
                if self._send_waiting(stopping):
                    spoken = time.monotonic()
                elif time.monotonic() - spoken > ALIVE_S:
                    self._post(b"")
                    spoken = time.monotonic()
                if stopping:
                    self._connection.close()
                    return
            except Unreachable as error:
                logger.warning("run %d: %s; trying again", self.id, error)
                self._bound_inbox()
                self._wake.wait(RETRY_S)
                if stopping:
                    time.sleep(RETRY_S)
            except TrackingError as error:
                logger.error("run %d is not recorded any more: %s", self.id, error)
                self._refusal = error
            except Exception as error:  # whatever it is, finish() has to tell of it
                logger.exception("run %d is not recorded any more", self.id)
                self._refusal = TrackingError(f"run {self.id} could not be sent on: {type(error).__name__}: {error}")
            if not stopping:
                self._wait()

    def _wait(self) -> None:
        """Until it is time to send, a batch is full, or the run is to end."""
        until = time.monotonic() + SEND_S
        while not self._is_full() and (left := until - time.monotonic()) > 0:
            if self._wake.wait(min(left, FULL_S)):
                return

    def _is_full(self) -> bool:
        waiting = len(self._inbox)
        return waiting > 0 and waiting * len(self._inbox[0][3]) >= MAX_BATCH_POINTS

    def _send_waiting(self, stopping: bool) -> bool:
        """Send the inbox, in batches, and the end of the run with the last of them; whether there was anything.

        A loop that logs faster than the server stores is sent in full batches, never in many small ones.
        """
        sent = False
        while (
            self._unsent is not None
            or (self._inbox and (stopping or not sent or self._is_full()))
            or (stopping and not self._has_ended)
        ):
            if self._unsent is None:
                self._unsent = self._batch() if self._inbox else b""
                if stopping and not self._inbox:
                    self._unsent += self._frame(self._ending())
                    self._has_ended = True
            self._post(self._unsent)
            self._unsent = None
            sent = True
        return sent

    def _batch(self) -> bytes:
        calls: list[Call] = []
        num_points = 0
        while self._inbox and num_points < MAX_BATCH_POINTS:
            fitting = (MAX_BATCH_POINTS - num_points) // len(self._inbox[0][3])
            size = max(1, min(len(self._inbox), CALLS_AT_ONCE, fitting))
            some = list(islice(iter(self._inbox.popleft, None), size))
            num_points += sum(map(len, map(_VALUES, some)))
            calls += some
        columns = columns_of(calls)
        self._last |= {column.name: _LAST.unpack(column.values[-8:])[0] for column in columns}
        return self._frame(Segment(columns=columns))

    def _ending(self) -> AnyEvent:
        return self._end or Finished(
            metrics=self._last, steps=self._step, skipped_steps=0, samples=0, lost_samples=0,
            train_s=time.monotonic() - self._began, warmup_s=math.nan,
        )  # fmt: skip

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
