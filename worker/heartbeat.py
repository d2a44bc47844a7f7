"""The worker's heartbeat: renews leases, shows that it lives, and brings word of what is to stop."""

from __future__ import annotations

import logging
import threading
import time

from sqlalchemy import update

from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Worker
from server.queue.clock import store_now
from server.queue.lease import renew, stop_requests
from server.settings import Settings
from worker.active import ActiveRuns

CANCEL_CHECK_S = 1.0

_log = logging.getLogger(__name__)


class Heartbeat:
    """A thread that beats every ``heartbeat_s`` and looks each second for runs that are to stop.

    While the store is away the runs go on; their leases are renewed when it is back.
    """

    def __init__(self, database: Database, settings: Settings, worker_id: int, active: ActiveRuns) -> None:
        self._database, self._settings = database, settings
        self._worker_id, self._active = worker_id, active
        self._stopped = threading.Event()
        self._is_store_away = False
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
                else:
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
        with self._database.write() as session:
            now = store_now(session)
            renewal = renew(session, self._worker_id, attempts, self._settings.lease_s, now)
            session.execute(update(Worker).where(Worker.id == self._worker_id).values(heartbeat_at=now, state="online"))
        self._active.lose(renewal.lost)
        self._active.stop(cancelled=renewal.cancelled, paused=renewal.paused)

    def look_for_requests(self) -> None:
        """Pass on requests to cancel or to pause that came in since the last look."""
        run_ids = [run_id for run_id, _ in self._active.attempts()]
        if run_ids:
            with self._database.read() as session:
                asked = stop_requests(session, run_ids)
            self._active.stop(cancelled=asked.cancelled, paused=asked.paused)
