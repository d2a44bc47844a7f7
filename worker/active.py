"""The attempts this worker runs now, shared between the slots' threads and the heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from worker.supervise import Supervision


class ActiveRuns:
    """Supervisions by (run id, attempt). Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_attempt: dict[tuple[int, int], Supervision] = {}

    @contextmanager
    def added(self, run_id: int, attempt: int, supervision: Supervision) -> Iterator[None]:
        """The attempt is active within the block."""
        with self._lock:
            self._by_attempt[run_id, attempt] = supervision
        try:
            yield
        finally:
            with self._lock:
                del self._by_attempt[run_id, attempt]

    def attempts(self) -> list[tuple[int, int]]:
        with self._lock:
            return list(self._by_attempt)

    def cancel(self, run_ids: Collection[int]) -> None:
        """Pass on that someone asked to cancel these runs."""
        with self._lock:
            for (run_id, _), supervision in self._by_attempt.items():
                if run_id in run_ids:
                    supervision.cancel.set()

    def lose(self, attempts: Collection[tuple[int, int]]) -> None:
        """These are no longer ours: their children are killed, and nothing more is written."""
        with self._lock:
            for attempt in attempts:
                if attempt in self._by_attempt:
                    self._by_attempt[attempt].lost.set()

    def abandon_all(self) -> None:
        """The worker stops: kill every child and leave the attempts open."""
        with self._lock:
            for supervision in self._by_attempt.values():
                supervision.abandon.set()
