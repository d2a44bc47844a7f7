"""The worker's heartbeat: renews leases, shows that it lives, and brings word of what is to stop."""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy import update
from sqlalchemy.orm import Session

from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Worker
from server.db.upgrade import expected_version, found_version
from server.queue.clock import store_now
from server.queue.lease import renew, stop_requests
from server.queue.seats import broken_of, over_of, renew_reserved
from server.settings import Settings
from worker.active import ActiveRuns
from worker.readings import Devices, store_readings

CANCEL_CHECK_S = 1.0
MAX_SKEW_S = 2.0  # between this host's clock and the store's

_log = logging.getLogger(__name__)


def schema_problem(session: Session) -> str | None:
    """Why this program may not work on the store any more: its tables were upgraded while it ran. None if it may."""
    found, expected = found_version(session.connection()), expected_version()
    if found == expected:
        return None
    return (
        f"the store has tables of version {found}, this worker's program knows version {expected}: it finishes what it "
        "runs and takes no more; install the server's version here and start the worker again"
    )


class Heartbeat:
    """A thread that beats every ``heartbeat_s`` and looks each second for runs that are to stop.

    While the store is away the runs go on; their leases are renewed when it is back.
    """

    def __init__(
        self, database: Database, settings: Settings, worker_id: int, active: ActiveRuns, devices: Devices
    ) -> None:
        self._database, self._settings = database, settings
        self._worker_id, self._active, self._devices = worker_id, active, devices
        self._stopped = threading.Event()
        self._is_store_away = False
        self._told: str | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for the beat at hand."""
        self._stopped.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        next_beat = time.monotonic()
        while not self._stopped.wait(min(CANCEL_CHECK_S, self._settings.heartbeat_s)):
            try:
                if time.monotonic() >= next_beat:
                    next_beat = time.monotonic() + self._settings.heartbeat_s
                    self.beat()
                self.look_for_requests()
                if self._is_store_away:
                    _log.info("the store is back")
                self._is_store_away = False
            except StoreUnavailable as error:
                if not self._is_store_away:
                    _log.warning("heartbeat: %s", error)
                self._is_store_away = True
                next_beat = 0.0  # renew first thing when it is back
            except Exception:  # noqa: BLE001 - without heartbeats every run here would be lost
                _log.exception("a heartbeat failed; the next one tries again")

    def beat(self) -> None:
        """Renew every lease and the worker's row; act on what was lost or is to be cancelled."""
        attempts = self._active.attempts()
        readings = self._devices.readings() if self._devices.due() else {}
        with self._database.write() as session:
            asked_at = time.time()
            now = store_now(session)
            skew_s = (asked_at + time.time()) / 2 - now.timestamp()
            renewal = renew(session, self._worker_id, attempts, self._settings.lease_s, now)
            renew_reserved(session, self._worker_id, self._settings.lease_s, now)
            problem = schema_problem(session)
            session.execute(
                update(Worker)
                .where(Worker.id == self._worker_id)
                .values(heartbeat_at=now, state="online", clock_skew_s=round(skew_s, 3), problem=problem, lost_at=None)
            )
            if readings:
                store_readings(session, self._worker_id, readings, now)
        self._tell(problem, skew_s)
        self._active.lose(renewal.lost)
        self._active.stop(cancelled=renewal.cancelled, paused=renewal.paused)

    def _tell(self, problem: str | None, skew_s: float) -> None:
        """Say once what is wrong here, and again when that changed."""
        if problem is None and abs(skew_s) > MAX_SKEW_S:
            problem = (
                f"the clock of this host differs from the store's by {skew_s:+.1f} s: times in logs and charts are off "
                "by as much; synchronise it (NTP)"
            )
        words = problem and problem.split(":")[0]
        if problem is not None and words != self._told:
            _log.warning("%s", problem)
        self._told = words

    def look_for_requests(self) -> None:
        """Pass on requests to cancel or to pause that came in since the last look, and how other hosts of a run are."""
        run_ids = [run_id for run_id, _ in self._active.attempts()]
        if run_ids:
            led, joined = self._active.led(), self._active.joined()
            with self._database.read() as session:
                asked = stop_requests(session, run_ids)
                broken = broken_of(session, led) if led else frozenset()
                over = over_of(session, joined) if joined else frozenset()
            self._active.stop(cancelled=asked.cancelled, paused=asked.paused)
            self._active.break_off(broken)
            self._active.lose(over)
