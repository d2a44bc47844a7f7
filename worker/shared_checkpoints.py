"""Checkpoints through the shared store, so that a run goes on on another host where it was left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from pathlib import Path

from amp_core.checkpoint_names import step_of
from worker.artifact_store import ArtifactStore

FOLDER = "checkpoints"
KEEP = 2  # of one run: the newest, and the one before should the newest turn out damaged
WAIT_S = 120.0

_log = logging.getLogger(__name__)


def shared_folder(run_id: int) -> str:
    """The name of a run's folder in the store."""
    return f"{FOLDER}/run-{run_id}"


class CheckpointUploads:
    """Copies an attempt's checkpoints to the store from a thread of its own; without a store it does nothing.

    Only the newest is copied when they come faster than they go. A store that fails costs the copy, never the run.
    Copies of ``kept_steps`` are not dropped for newer ones; that each of these is copied is `worker.kept_checkpoints`'.
    """

    def __init__(
        self, store: ArtifactStore | None, run_id: int, max_bytes: int, kept_steps: Collection[int] = ()
    ) -> None:
        self._store, self._run_id, self._max_bytes = store, run_id, max_bytes
        self._kept_steps = frozenset(kept_steps)
        self._changed = threading.Condition()
        self._next: Path | None = None
        self._is_busy = self._stopped = False
        self._copied: list[str] = []
        self._thread = threading.Thread(target=self._run, name=f"checkpoints-{run_id}", daemon=True)
        if store is not None:
            self._thread.start()

    def offer(self, path: Path) -> None:
        """This checkpoint is complete on the disk."""
        if self._store is not None:
            with self._changed:
                self._next = path
                self._changed.notify_all()

    def finish(self, timeout_s: float = WAIT_S) -> None:
        """Wait for the newest to be copied, and end; call it before anybody else may go on from there."""
        with self._changed:
            self._changed.wait_for(lambda: self._next is None and not self._is_busy, timeout_s)
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None or self._stopped)
                path, self._next = self._next, None
                if path is None:
                    return
                self._is_busy = True
            try:
                self._copy(path)
            except Exception as error:  # noqa: BLE001 - any file system behind fsspec has errors of its own
                _log.warning("checkpoint %s of run %d is not shared: %s", path.name, self._run_id, error)
            finally:
                with self._changed:
                    self._is_busy = False
                    self._changed.notify_all()

    def _copy(self, path: Path) -> None:
        assert self._store is not None
        num_bytes = path.stat().st_size
        if num_bytes > self._max_bytes:
            raise ValueError(f"it has {num_bytes} bytes, AMPBOARD_MAX_ARTIFACT_BYTES allows {self._max_bytes}")
        folder = shared_folder(self._run_id)
        self._store.put(path, f"{folder}/{path.name}")
        self._copied = [*(name for name in self._copied if name != path.name), path.name][-KEEP:]
        if len(self._copied) == KEEP:
            for name in self._store.names(folder):
                if name not in self._copied and step_of(name) not in self._kept_steps:
                    self._store.drop(f"{folder}/{name}")


def at_hand(known: tuple[str, ...], folder: Path, run_id: int, store: ArtifactStore | None) -> tuple[str, ...]:
    """The known checkpoints as files of this host, the newest first; one is fetched if the newest was made elsewhere.

    A checkpoint's name is its identity, so one of that name in ``folder`` is the same wherever it was written.
    """
    paths = [own if (own := folder / Path(path).name).exists() else Path(path) for path in known]
    if store is not None:
        for index, path in enumerate(paths):
            if path.exists():
                break
            try:
                fetched = store.get(f"{shared_folder(run_id)}/{path.name}", folder / path.name)
            except Exception as error:  # noqa: BLE001 - as above; the run goes on from an older one, or from step 1
                _log.warning("checkpoint %s of run %d cannot be fetched: %s", path.name, run_id, error)
                break
            if fetched:
                paths[index] = folder / path.name
                break
    return tuple(map(str, paths))


def drop_shared(store: ArtifactStore | None, run_id: int, kept: Collection[str] = ()) -> None:
    """Forget the run's checkpoints in the store but those of the names in ``kept``."""
    if store is not None:
        folder = shared_folder(run_id)
        try:
            if not kept:
                store.drop(folder)
            for name in store.names(folder) if kept else ():
                if name not in kept:
                    store.drop(f"{folder}/{name}")
        except Exception as error:  # noqa: BLE001 - as above
            _log.warning("the shared checkpoints of run %d stay: %s", run_id, error)


def shared_runs(store: ArtifactStore | None) -> list[int]:
    """The runs that have checkpoints in the store."""
    if store is None:
        return []
    try:
        names = store.names(FOLDER)
    except Exception as error:  # noqa: BLE001 - as above
        _log.warning("the shared checkpoints cannot be listed: %s", error)
        return []
    return [int(name[4:]) for name in names if name.startswith("run-") and name[4:].isdigit()]
