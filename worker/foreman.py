"""The foreman: claims runs for free slots and runs each to its end."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from amp_core.errors import AmpError
from amp_core.launcher import Launcher
from server.broker.publish import ring
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.logs import bound_run
from server.queue.claim import ClaimedRun, claim
from server.queue.policy import Policy
from server.settings import Settings
from worker.active import ActiveRuns, Requests
from worker.advertise import endpoint
from worker.artifact_store import ArtifactStore
from worker.checkpoints import drop_checkpoints, with_checkpoints
from worker.ending import Ending, Reason
from worker.fetched_sources import fetch_source
from worker.kept_checkpoints import share_kept
from worker.partners import Partners
from worker.record import Recorder
from worker.registry import worker_name
from worker.run_config import limits_of, run_config
from worker.scratch import scratch_of
from worker.seat_record import SeatRecorder
from worker.shared_checkpoints import CheckpointUploads
from worker.slots import Slot, SlotPool
from worker.supervise import Supervision
from worker.workload_files import WorkloadMissing, locate, workload_folders

_log = logging.getLogger(__name__)
Slots = tuple[Slot, ...]


class Foreman:
    """Fills the slots. `work` runs in the Celery pool's threads, `poll` in the worker's own; both may overlap."""

    def __init__(
        self,
        *,
        database: Database,
        settings: Settings,
        worker_id: int,
        slots: SlotPool,
        launcher_of: Callable[[Sequence[Slot]], Launcher],
        free_bytes: Callable[[Sequence[Slot]], Mapping[str, int]],
        spool_folder: Path,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        self.active = ActiveRuns()
        self._database, self._settings, self._worker_id = database, settings, worker_id
        self._slots, self._launcher_of, self._free_bytes = slots, launcher_of, free_bytes
        self._policy = Policy.of(settings)
        self._folders = workload_folders(settings)
        self._spool_folder = spool_folder
        self._artifacts = artifacts
        self._claiming = threading.Lock()
        self._is_store_away = False
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def work(self) -> int:
        """Claim and run until nothing fits a free slot; return how many runs that were."""
        num_runs = 0
        while (taken := self._take()) is not None:
            self._run(*taken)
            num_runs += 1
        return num_runs

    def poll(self) -> None:
        """Start a thread for each run that fits a free slot now: what a doorbell that did not ring costs is a poll."""
        while (taken := self._take()) is not None:
            thread = threading.Thread(
                target=self._run_and_go_on, args=taken, name=f"slot-{taken[0][0].number}", daemon=True
            )
            self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
            thread.start()

    def stop(self) -> None:
        """Claim nothing more, and kill the children; their attempts stay open for `server.queue.reap.release`."""
        self._stopping.set()
        self.active.abandon_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the own threads after `stop`."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _run_and_go_on(self, slots: Slots, claimed: ClaimedRun, requests: Requests) -> None:
        self._run(slots, claimed, requests)
        self.work()

    def _take(self) -> tuple[Slots, ClaimedRun, Requests] | None:
        """Claim a run and its slots together; None when nothing fits, the store is away, or the worker stops."""
        with self._claiming:
            if self._stopping.is_set() or not (free := self._slots.free()):
                return None
            memory = self._free_bytes(free)
            enough = self._settings.min_free_memory_bytes
            names = [slot.device for slot in free if memory.get(slot.device, enough) >= enough]
            try:
                with self._database.write() as session:
                    claimed = claim(
                        session, self._worker_id, names, self._settings.lease_s, policy=self._policy,
                        free_bytes=memory, endpoint=lambda: endpoint(self._settings),
                    )  # fmt: skip
            except StoreUnavailable as error:
                _log.log(logging.DEBUG if self._is_store_away else logging.WARNING, "nothing can be claimed: %s", error)
                self._is_store_away = True
                return None
            self._is_store_away = False
            if claimed is None:
                return None
            node = None if claimed.gang is None else claimed.gang.node
            requests = self.active.add(claimed.run_id, claimed.attempt, node)  # before anything that may take long
            slots = self._slots.take(claimed.devices)
        if claimed.gang is not None and node == 0:
            ring(self._settings, claimed.gang.num_hosts)  # the other hosts' seats wait for them
        return slots, claimed, requests

    def _run(self, slots: Slots, claimed: ClaimedRun, requests: Requests) -> None:
        """Run one claimed attempt; whatever goes wrong here, the slot is free afterwards and the run not stuck."""
        node = 0 if claimed.gang is None else claimed.gang.node
        scratch = scratch_of(self._settings.data_dir, claimed.run_id, claimed.attempt, node)
        with bound_run(claimed.run_id):
            try:
                self._supervise(slots, claimed, requests, scratch)
            except Exception:  # noqa: BLE001 - the thread serves other runs
                _log.exception("attempt %d fell out of its supervision; its lease will expire", claimed.attempt)
            finally:
                self.active.remove(claimed.run_id, claimed.attempt)
                shutil.rmtree(scratch, ignore_errors=True)
                with self._claiming:
                    self._slots.give_back(slots)

    def _supervise(self, slots: Slots, claimed: ClaimedRun, requests: Requests, scratch: Path) -> None:
        if self._stopping.is_set():
            requests.abandon.set()
        is_further = claimed.gang is not None and claimed.gang.node > 0  # the first host keeps the run's record
        recorder = self._recorder(claimed, requests)
        try:
            path = self._source(claimed)
            config = run_config(claimed, slots[0], path, scratch, self._settings)
            config = with_checkpoints(self._database, config, self._settings.data_dir, self._artifacts)
            scratch.mkdir(parents=True, exist_ok=True)
        except (WorkloadMissing, AmpError, msgspec.ValidationError, StoreUnavailable, OSError) as error:
            recorder.start()
            recorder.finish(Ending(outcome="failed", reason=_refusal(error)), requests.abandon)
            return
        limits = limits_of(claimed, self._settings)
        where = "" if claimed.gang is None else f", host {claimed.gang.node + 1} of {claimed.gang.num_hosts}"
        _log.info("attempt %d begins on %s%s", claimed.attempt, ", ".join(claimed.devices), where)
        uploads, partners = None, None
        if not is_further:
            uploads = CheckpointUploads(
                self._artifacts, claimed.run_id, self._settings.max_artifact_bytes, config.keep_steps
            )
        if claimed.gang is not None and not is_further:
            partners = Partners(self._database, claimed, requests, 2 * self._settings.lease_s)
        ended = Supervision(recorder, self._launcher_of(slots), config, limits, requests, uploads, partners).run()
        if ended and not is_further:
            share_kept(self._database, self._settings, self._artifacts, claimed.run_id)
            drop_checkpoints(
                self._database, claimed.run_id, self._settings.data_dir, self._artifacts, worker_name(self._settings)
            )
        _log.info("attempt %d %s", claimed.attempt, "has ended" if ended else "was left open")

    def _recorder(self, claimed: ClaimedRun, requests: Requests) -> Recorder | SeatRecorder:
        if claimed.gang is not None and claimed.gang.node > 0:
            return SeatRecorder(self._database, claimed, requests.lost)
        return Recorder(self._database, self._spool_folder, claimed.run_id, claimed.attempt, requests.lost)

    def _source(self, claimed: ClaimedRun) -> Path:
        """The workload's file here, or as another worker recorded it where that is allowed."""
        try:
            return locate(claimed, self._folders)
        except WorkloadMissing:
            if not self._settings.fetch_workloads:
                raise
            return fetch_source(self._database, claimed, self._settings.data_dir)


def _refusal(error: Exception) -> Reason:
    kind, remedy = "recipe", "Choose a recipe this device can run."
    if isinstance(error, WorkloadMissing):
        kind, remedy = "workload", "Put the file back, or clone the experiment to compare the new version."
    elif isinstance(error, OSError):
        kind, remedy = "disk", "Free space in the worker's data folder, then retry the run."
    return {"kind": kind, "message": str(error), "remedy": remedy}
