"""How a script's run ends: by itself with the script, by an exception, or early because nothing helps."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from types import TracebackType

from amp_core.errors import Interrupted, TrainingStopped
from amp_core.events import Event
from amp_core.failure import failure_of


class Ending:
    """Sends the last events once. With ``is_process_wide`` the interpreter's end and uncaught exceptions count."""

    def __init__(
        self,
        send: Callable[[Event], None],
        finish: Callable[[str], None],
        rest: Callable[[], None],
        *,
        is_process_wide: bool,
    ) -> None:
        self._send, self._finish, self._rest = send, finish, rest
        self._is_over = False
        if is_process_wide:
            self._previous = sys.excepthook
            sys.excepthook = self._on_exception
            atexit.register(self.finish)

    def finish(self, stopped: str = "") -> None:
        """The run has come to its end; what is wrong with it then is told, and raised."""
        if self._is_over:
            return
        self._is_over = True
        try:
            self._finish(stopped)
        except Interrupted as error:
            self._rest()
            self._send(failure_of(error))
        except Exception as error:
            self._send(failure_of(error))
            raise

    def fail(self, error: BaseException) -> None:
        """An exception ends the run."""
        if self._is_over:
            return
        if isinstance(error, TrainingStopped):
            self.finish(str(error))
            return
        self._is_over = True
        self._rest()
        self._send(failure_of(error))

    def _on_exception(self, kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
        self.fail(error)
        self._previous(kind, error, at)
