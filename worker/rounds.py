"""The worker's own rounds: what keeps runs moving when a message, a broker or another worker is lost."""

from __future__ import annotations

import logging
import threading
import time

from server.broker.embedded import BrokerError, EmbeddedBroker
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.queue.reap import Reaper
from server.settings import Settings
from worker.artifact_store import ArtifactStore
from worker.checkpoints import drop_forgotten
from worker.foreman import Foreman
from worker.kept_checkpoints import share_kept
from worker.registry import worker_name
from worker.scratch import drop_left_scratch

POLL_S = 2.0
TIDY_S = 60.0

_log = logging.getLogger(__name__)


class Rounds:
    """A thread that fills free slots every few seconds, requeues lost runs, and keeps the embedded broker alive."""

    def __init__(
        self, database: Database, settings: Settings, foreman: Foreman, artifacts: ArtifactStore | None = None
    ) -> None:
        self._foreman = foreman
        self._poll_s = min(POLL_S, settings.sweep_s)
        self._sweep_s = settings.sweep_s
        self._settings = settings
        self._database, self._data_dir, self._artifacts = database, settings.data_dir, artifacts
        self._tidy_at = time.monotonic()
        self._reaper = Reaper(database, patience_s=settings.lease_s)
        self._broker = EmbeddedBroker(settings) if settings.embedded_broker else None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rounds", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        next_sweep = time.monotonic()
        while not self._stopped.is_set():
            try:
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + self._sweep_s
                    self._sweep()
                self._foreman.poll()
            except StoreUnavailable as error:  # the heartbeat has said so
                _log.debug("lost runs cannot be requeued now: %s", error)
            except Exception:  # noqa: BLE001 - without polls a lost message would strand a run
                _log.exception("a round failed; the next one tries again")
            self._stopped.wait(self._poll_s)

    def _sweep(self) -> None:
        if self._broker is not None:
            try:
                self._broker.ensure()
            except (BrokerError, OSError) as error:
                _log.warning("%s; runs are claimed by polling meanwhile", error)
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + TIDY_S
            drop_left_scratch(self._database, self._data_dir)
            share_kept(self._database, self._settings, self._artifacts)
            drop_forgotten(self._database, self._data_dir, self._artifacts, worker_name(self._settings))
        for lost in self._reaper.reap():
            _log.warning("run %d lost attempt %d and is %s", lost.run_id, lost.attempt, lost.state)
