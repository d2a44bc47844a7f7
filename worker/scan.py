"""Finding workload files in the configured folders, and keeping the store's list of them current."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.settings import Settings
from worker.describe import Described, describe_files
from worker.workload_files import Signature, source_hash, workload_files, workload_folders
from worker.workload_rows import described_before, record_file

SCAN_S = 3.0

_log = logging.getLogger(__name__)


class Scanner:
    """Watches the folders from a thread of its own; a file is described again when it has changed.

    A version is (name, source hash). Several hosts may scan: each records what *changed* on it, so they do not fight.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._folders = workload_folders(settings)
        self._signatures: dict[Path, Signature] = {}
        self._known: dict[Path, list[Described]] = {}
        self._unrecorded: list[Path] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scan", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def scan(self) -> int:
        """Describe what has changed since the last scan and record it; return how many files that were."""
        found = {path: signature for folder in self._folders for path, signature in workload_files(folder)}
        changed = [path for path, signature in found.items() if self._signatures.get(path) != signature]
        removed = [path for path in self._signatures if path not in found]
        self._describe([path for path in changed if not self._is_described(path)])
        for path in removed:
            del self._signatures[path]
        self._signatures |= {path: found[path] for path in changed}
        self._unrecorded += [path for path in [*changed, *removed] if path not in self._unrecorded]
        self._record()
        return len(changed)

    def _is_described(self, path: Path) -> bool:
        """Whether this version of the program has described this very file before; then nothing is imported."""
        with self._database.read() as session:
            self._known[path] = described_before(session, path, source_hash(path))
        return bool(self._known[path])

    def _describe(self, paths: Sequence[Path]) -> None:
        described = describe_files(paths)
        for path in paths:
            self._known[path] = [
                known if known.source_hash else replace(known, source_hash=source_hash(path))
                for known in described
                if known.path == path
            ]

    def _record(self) -> None:
        """Write to the store what is not recorded yet; without a store it waits for the next scan."""
        for path in list(self._unrecorded):
            with self._database.write() as session:
                if path in self._signatures:
                    modified_at = datetime.fromtimestamp(self._signatures[path][0] / 1e9, UTC)
                    record_file(session, path, self._known[path], modified_at)
                else:
                    record_file(session, path, [], datetime.now(UTC))
                    self._known.pop(path, None)
            self._unrecorded.remove(path)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self.scan()
            except StoreUnavailable as error:
                _log.warning("workloads cannot be recorded now: %s", error)
            except Exception:  # noqa: BLE001 - a scan must not be the last one
                _log.exception("scanning the workload folders failed; the next scan tries again")
            self._stopped.wait(SCAN_S)
