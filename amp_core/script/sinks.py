"""Where the events of a script go: to the worker that runs it, to a tracked run, or nowhere."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from amp_core.events import Event, Failed, Finished, Frame, Segment, encode_frame
from amp_core.tracking.run import TrackedRun


class Sink(Protocol):
    """Takes the events of one run, in their order."""

    def send(self, event: Event) -> None: ...


class Nowhere:
    """Outside the worker, without tracking: the recipe runs, and nobody is told."""

    def send(self, event: Event) -> None:
        """Forget the event."""


class EventPipe:
    """Numbers events and writes their frames to the pipe that the worker's child process reads."""

    def __init__(self, path: str, lock: Path | None = None) -> None:
        """``lock``: a file that orders the frames of several processes."""
        self._fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # an error where nobody reads any more
        os.set_blocking(self._fd, True)
        self._lock_fd = None if lock is None else os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
        self._sequence = 0
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def send(self, event: Event) -> None:
        """Write one frame; a forked data loader process writes none."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._sequence += 1
            frame = Frame(sequence=self._sequence, at=time.time(), event=event)  # type: ignore[arg-type]  # one of AnyEvent
            with self._ordered():
                view = memoryview(encode_frame(frame))
                while view:
                    view = view[os.write(self._fd, view) :]

    @contextmanager
    def _ordered(self) -> Iterator[None]:
        if self._lock_fd is None:
            yield
            return
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)


class Tracked:
    """A run of `amp_core.tracking`: it gets every series; of the events it gets how the run ended."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run

    def send(self, event: Event) -> None:
        """Log the points of a segment, or end the run."""
        if isinstance(event, Segment):
            points: dict[int, dict[str, float]] = {}
            for column in event.columns:
                steps, values = np.frombuffer(column.steps, "<i8"), np.frombuffer(column.values, "<f8")
                for step, value in zip(steps.tolist(), values.tolist(), strict=True):
                    points.setdefault(step, {})[column.name] = value
            for step in sorted(points):
                self._run.log(points[step], step=step)
        elif isinstance(event, Finished):
            self._run.finish()
        elif isinstance(event, Failed):
            self._run.fail(event.message, event.traceback)
