"""Slows down password guessing."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from server.errors import TooManyRequests

MAX_NAMES = 10_000


class Throttle:
    """Refuses a name for a while after ``max_failures`` failures within ``window_s`` seconds. In memory only."""

    def __init__(self, max_failures: int, window_s: float) -> None:
        self.max_failures = max_failures
        self.window_s = window_s
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, name: str) -> None:
        """Raises `TooManyRequests` when the name has failed too often lately."""
        with self._lock:
            recent = self._recent(name)
        if len(recent) >= self.max_failures:
            wait_s = self.window_s - (time.monotonic() - recent[0])
            raise TooManyRequests(
                f"{len(recent)} failed attempts for this name: wait {wait_s:.0f} s, or use a sign-in link"
            )

    def failed(self, name: str) -> None:
        """Count a failure."""
        with self._lock:
            self._failures[name] = [*self._recent(name), time.monotonic()][-self.max_failures :]
            self._failures.move_to_end(name)
            while len(self._failures) > MAX_NAMES:
                self._failures.popitem(last=False)

    def _recent(self, name: str) -> list[float]:
        begin = time.monotonic() - self.window_s
        return [moment for moment in self._failures.get(name, []) if moment > begin]
