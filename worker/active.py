"""The attempts this worker runs now, shared between the slots' threads and the heartbeat."""

from __future__ import annotations

import threading
from collections.abc import Collection


class Requests:
    """What others ask of one attempt, from its claim to its end.

    ``cancel``: someone wants it to stop. ``pause``: someone wants it to stop, and to go on later. ``lost``: it is no
    longer ours, so nothing may be written any more. ``abandon``: this worker stops, and leaves the attempt open.
    ``broken``: another host of the run has failed or was lost.
    """

    def __init__(self) -> None:
        self.cancel = threading.Event()
        self.pause = threading.Event()
        self.lost = threading.Event()
        self.abandon = threading.Event()
        self.broken = threading.Event()


class ActiveRuns:
    """Requests by (run id, attempt), which are also the leases to renew. Any thread may call any method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_attempt: dict[tuple[int, int], Requests] = {}
        self._nodes: dict[tuple[int, int], int] = {}  # of attempts on several hosts: which of them this one is

    def add(self, run_id: int, attempt: int, node: int | None = None) -> Requests:
        """Begin to renew the lease of an attempt that was just claimed, or of its ``node`` on one of several hosts."""
        requests = Requests()
        with self._lock:
            self._by_attempt[run_id, attempt] = requests
            if node is not None:
                self._nodes[run_id, attempt] = node
        return requests

    def remove(self, run_id: int, attempt: int) -> None:
        with self._lock:
            self._by_attempt.pop((run_id, attempt), None)
            self._nodes.pop((run_id, attempt), None)

    def led(self) -> list[tuple[int, int]]:
        """Attempts on several hosts of which this is the first."""
        with self._lock:
            return [attempt for attempt, node in self._nodes.items() if node == 0]

    def joined(self) -> list[tuple[int, int]]:
        """Attempts on several hosts of which this is a further one."""
        with self._lock:
            return [attempt for attempt, node in self._nodes.items() if node > 0]

    def attempts(self) -> list[tuple[int, int]]:
        with self._lock:
            return list(self._by_attempt)

    def stop(self, *, cancelled: Collection[int] = (), paused: Collection[int] = ()) -> None:
        """Pass on that someone asked to cancel or to pause these runs."""
        with self._lock:
            for (run_id, _), requests in self._by_attempt.items():
                if run_id in cancelled:
                    requests.cancel.set()
                if run_id in paused:
                    requests.pause.set()

    def lose(self, attempts: Collection[tuple[int, int]]) -> None:
        """These are no longer ours: their children are killed, and nothing more is written."""
        with self._lock:
            for attempt in attempts:
                if attempt in self._by_attempt:
                    self._by_attempt[attempt].lost.set()

    def break_off(self, attempts: Collection[tuple[int, int]]) -> None:
        """Another host of these has failed or was lost: they end here, too."""
        with self._lock:
            for attempt in attempts:
                if attempt in self._by_attempt:
                    self._by_attempt[attempt].broken.set()

    def abandon_all(self) -> None:
        """The worker stops: kill every child and leave the attempts open."""
        with self._lock:
            for requests in self._by_attempt.values():
                requests.abandon.set()
