"""The server's background thread: what no request and no worker may be relied on to do.

Every few seconds it requeues runs whose worker went silent, rings again for queued runs whose message was lost, judges
experiments whose runs have all ended, tells what alert rules find, folds what ended attempts left, and deletes what is
kept no longer. Several servers may sweep at once: each step is a transaction that checks again what it changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from server.broker.publish import ring
from server.comparisons.service import Tried, judge_ended
from server.db.engine import Database
from server.metrics.leftovers import fold_leftovers
from server.queue.reap import Reaper, stale_queued
from server.runs.delete import delete_expired, purge_deleted
from server.settings import Settings
from server.trends.alerts import check_rules
from server.webhooks.delivery import forget_old
from server.workers.service import note_lost_workers

logger = logging.getLogger(__name__)


class Sweep:
    """Runs the background work until ``stop`` is set. A step that fails is logged and tried again next time."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self.settings = settings
        self.stop = threading.Event()
        self._tried: Tried = {}
        self._reaper = Reaper(database, patience_s=settings.lease_s)
        self._thread = threading.Thread(target=self._run, name="sweep", daemon=True)

    def start(self) -> None:
        """Begin; the first sweep happens at once, so that a restarted server catches up."""
        self._thread.start()

    def join(self, timeout_s: float = 5.0) -> None:
        """Stop after the step at hand."""
        self.stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def sweep(self) -> None:
        """One round."""
        for step in (self._requeue, self._judge, self._tidy):
            if not self.stop.is_set():
                _logged(step)

    def _run(self) -> None:
        while not self.stop.is_set():
            self.sweep()
            self.stop.wait(self.settings.sweep_s)

    def _requeue(self) -> None:
        self._reaper.reap()
        with self.database.write() as session:
            note_lost_workers(session, self.settings.lease_s)
        with self.database.write() as session:
            num_waiting = stale_queued(session, self.settings.sweep_s)
        if num_waiting:
            ring(self.settings, num_waiting)

    def _judge(self) -> None:
        judge_ended(self.database, self._tried)
        check_rules(self.database)

    def _tidy(self) -> None:
        fold_leftovers(self.database)
        with self.database.write() as session:
            forget_old(session)
        delete_expired(self.database, self.settings.retention_days)
        purge_deleted(self.database, self.settings.undo_s)


def _logged(step: Callable[[], None]) -> None:
    try:
        step()
    except Exception:  # one failed round must not end the thread: the next one tries again
        logger.exception("a step of the background work failed and will be tried again")
