"""One writer at a time within a process, in the order in which they came.

SQLite lets its writers poll for the lock: of several that write again and again one may lose every time, until its
patience is over. Between processes that is left to SQLite; they are few.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from server.db.errors import StoreUnavailable


class Turns:
    """A lock that is handed over to whoever waits longest."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_taken = False
        self._waiting: deque[threading.Event] = deque()

    @contextmanager
    def take(self, patience_s: float) -> Iterator[None]:
        """Hold the lock within the block. Raises `StoreUnavailable` when it is not one's turn in time."""
        if not self._take(patience_s):
            raise StoreUnavailable(f"other writes kept the database busy for {patience_s:g} s: try again")
        try:
            yield
        finally:
            self._hand_over()

    def _take(self, patience_s: float) -> bool:
        turn = threading.Event()
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return True
            self._waiting.append(turn)
        if turn.wait(patience_s):
            return True
        with self._guard:
            if turn.is_set():  # handed over in the last moment
                return True
            self._waiting.remove(turn)
            return False

    def _hand_over(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._is_taken = False
