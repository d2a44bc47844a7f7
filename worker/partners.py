"""Why a run on several hosts broke: its first host asks the others before it says how the attempt ended.

When one host breaks, the processes of all others fail a moment later, since they wait for it in a collective. What
ends the attempt is the reason of the host that broke first: a failure of the run's own, or the loss of a host, which
queues the run again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.queue.claim import ClaimedRun
from server.queue.seats import SeatState, seat_states
from worker.active import Requests
from worker.ending import Ending, Reason
from worker.seat_record import was_killed

ASK_S = 0.25
CONSEQUENCE = "peer"  # kind of a failure that says only that another rank was gone
REMEDY = "A new attempt goes on from the last checkpoint, or from step 1 without one."

_log = logging.getLogger(__name__)


class Partners:
    """The other hosts of an attempt. ``patience_s`` is how long a broken one may take to be known, a lease at least."""

    def __init__(self, database: Database, claimed: ClaimedRun, requests: Requests, patience_s: float) -> None:
        assert claimed.gang is not None
        self._database, self._claimed, self._requests = database, claimed, requests
        self._num_hosts, self._patience_s = claimed.gang.num_hosts, patience_s

    def judged(self, ending: Ending) -> Ending:
        """The ending of the attempt, given how this host's part ended. Waits for the others to say what happened."""
        if ending.outcome != "failed":
            return ending
        kind = (ending.reason or {}).get("kind")
        if not self._requests.broken.is_set() and was_killed(ending):
            message = f"Host 1 of {self._num_hosts}: {(ending.reason or {}).get('message')}"
            return _lost(ending, {"kind": "lost", "message": message, "remedy": REMEDY})
        if kind != CONSEQUENCE and not was_killed(ending):
            return ending
        deadline = time.monotonic() + self._patience_s
        while True:
            if (found := self._blame(ending)) is not None:
                return found
            if time.monotonic() > deadline or self._is_over():
                message = f"The {self._num_hosts} hosts of the run lost each other, and none of them says why."
                return _lost(ending, {"kind": "lost", "message": message, "remedy": REMEDY})
            self._requests.abandon.wait(ASK_S)

    def _is_over(self) -> bool:
        return self._requests.lost.is_set() or self._requests.abandon.is_set()

    def _blame(self, ending: Ending) -> Ending | None:
        try:
            with self._database.read() as session:
                seats = seat_states(session, self._claimed.run_id, self._claimed.attempt)
        except StoreUnavailable as error:
            _log.debug("the other hosts cannot be asked now: %s", error)
            return None
        return blame(ending, seats, self._num_hosts)


def blame(ending: Ending, seats: Sequence[SeatState], num_hosts: int) -> Ending | None:
    """The ending that follows from the other hosts' parts; None while a host that may be the reason has not spoken."""
    for seat in seats:
        if seat.outcome == "failed" and (seat.reason or {}).get("kind") != CONSEQUENCE:
            return replace(ending, outcome="failed", reason=_of_host(seat, num_hosts, seat.reason or {}))
    for seat in seats:
        if seat.outcome == "lost":
            reason = {**(seat.reason or {}), "kind": "lost", "remedy": REMEDY}
            return _lost(ending, _of_host(seat, num_hosts, reason))
    for seat in seats:
        if seat.is_silent:
            message = (
                f"Worker {seat.worker}, host {seat.node + 1} of {num_hosts}, stopped answering; its lease ran out."
            )
            return _lost(ending, {"kind": "lost", "message": message, "remedy": REMEDY})
    if any(seat.is_open for seat in seats):
        return None
    message = f"The connection between the {num_hosts} hosts of the run broke."
    return _lost(ending, {"kind": "lost", "message": message, "remedy": REMEDY})


def _of_host(seat: SeatState, num_hosts: int, reason: Reason) -> Reason:
    return {**reason, "message": f"Worker {seat.worker}, host {seat.node + 1} of {num_hosts}: {reason.get('message')}"}


def _lost(ending: Ending, reason: Reason) -> Ending:
    return replace(ending, outcome="lost", reason=reason)
