"""Keeps a server, a worker and the embedded broker running as child processes of one command.

A dead child is started again, with growing pauses while it keeps dying. Leaving the block stops all of them within
seconds; `server.cli.guard` does so when this process itself is killed.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from server.cli.children import Child, Guard, Say

TEND_S = 0.2
STOP_S = 8.0


class Supervisor:
    """Runs children and tends them from a thread of its own; a context manager that stops them on leaving.

    Args:
        say: receives one line for people whenever a child died or came back.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._guard = Guard()
        self._children: list[Child] = []
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._tend, name="supervisor", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def run(self, child: Child) -> None:
        """Start a child and keep it running from now on."""
        with self._lock:
            child.start(self._guard)
            self._children.append(child)

    def stop(self) -> None:
        """Stop every child, the last started first asked; kills what has not ended after `STOP_S` seconds."""
        self._stopping.set()
        self._thread.join()
        deadline = time.monotonic() + STOP_S
        for child in reversed(self._children):
            child.ask_to_stop()
        for child in reversed(self._children):
            child.stop_by(deadline, self._guard)
        self._children.clear()
        self._guard.close()

    def _tend(self) -> None:
        while not self._stopping.wait(TEND_S):
            with self._lock:
                for child in self._children:
                    child.tend(self._guard, self._say)
