"""What is kept of an attempt's part on a further host: how it ended, and the end of its log.

The run's points and events come from its first host alone, so nothing is stored while it goes on.
"""

from __future__ import annotations

import logging
import signal
import threading

from amp_core.events import Frame
from server.db.engine import Database
from server.db.errors import LeaseLost, StoreUnavailable
from server.queue.claim import ClaimedRun
from server.queue.seats import SeatOutcome, end_seat
from worker.ending import Ending, Reason

RETRY_S = 1.0
MAX_LOG_CHARS = 16_000
KILLED = (-signal.SIGKILL, -signal.SIGTERM)  # exit codes of a process that something outside ended

_log = logging.getLogger(__name__)


class SeatRecorder:
    """Takes the place of `worker.record.Recorder` for a node above 0; ``lost`` is set when the attempt is over."""

    def __init__(self, database: Database, claimed: ClaimedRun, lost: threading.Event) -> None:
        assert claimed.gang is not None
        self.lost = lost
        self.failure: Reason | None = None
        self._database, self._claimed, self._node = database, claimed, claimed.gang.node
        self._text = ""

    def start(self) -> None:
        """Nothing has to be stored yet."""

    def put_frame(self, frame: Frame) -> None:
        """The first host's process tells the same."""

    def put_log(self, text: str) -> None:
        """Take the next piece of the log; its end is kept."""
        self._text = (self._text + text)[-MAX_LOG_CHARS:]

    def finish(self, ending: Ending | None, give_up: threading.Event) -> bool:
        """Tell how this part ended, and return whether the store knows; waits for one that is away, as a run's does."""
        while ending is not None and not self.lost.is_set():
            try:
                with self._database.write() as session:
                    end_seat(
                        session, self._claimed.run_id, self._claimed.attempt, self._node, seat_outcome(ending),
                        ending.reason, ending.exit_code, self._text,
                    )  # fmt: skip
            except LeaseLost as error:
                _log.info("%s", error)
                self.lost.set()
            except StoreUnavailable as error:
                _log.warning("how this host's part ended waits for the store: %s", error)
                if give_up.wait(RETRY_S):
                    return False
            else:
                return True
        return False


def seat_outcome(ending: Ending) -> SeatOutcome:
    """How a part of a run ended, as its first host has to know it."""
    kind = (ending.reason or {}).get("kind")
    if ending.outcome == "completed":
        return "completed"
    if ending.outcome in ("cancelled", "paused") or kind == "interrupted":
        return "stopped"
    return "lost" if was_killed(ending) else "failed"


def was_killed(ending: Ending) -> bool:
    """Whether something outside ended the process: that says nothing against the run."""
    return (ending.reason or {}).get("kind") == "signal" and ending.exit_code in KILLED
