"""Finding workload files in the configured folders, and keeping the store's list of them current."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import amp_core
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.settings import Settings
from worker.describe import Described, describe_files
from worker.workload_rows import mark_removed, record

SCAN_S = 3.0
BUNDLED = Path(amp_core.__file__).parent / "workloads"

_log = logging.getLogger(__name__)
Signature = tuple[int, int]  # modification time in ns, size


class WorkloadMissing(Exception):
    """This host does not have the version of the workload that a run was submitted with; the message says why."""


class Scanner:
    """Watches the folders from a thread of its own; a file is described again when it has changed.

    A version is (name, source hash). Several hosts may scan: each records what *changed* on it, so they do not fight.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._folders = [BUNDLED, *settings.workloads]
        self._signatures: dict[Path, Signature] = {}
        self._known: dict[Path, list[Described]] = {}
        self._unrecorded: list[Path] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scan", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def scan(self) -> int:
        """Describe what has changed since the last scan and record it; return how many files that were."""
        with self._lock:
            found = {path: signature for folder in self._folders for path, signature in _files(folder)}
            changed = [path for path, signature in found.items() if self._signatures.get(path) != signature]
            removed = [path for path in self._signatures if path not in found]
            self._describe(changed)
            for path in removed:
                del self._signatures[path]
            self._signatures |= {path: found[path] for path in changed}
            self._unrecorded += [path for path in [*changed, *removed] if path not in self._unrecorded]
            self._record()
            return len(changed)

    def locate(self, name: str, source_hash: str) -> Path:
        """The file that holds exactly this version of the workload. Raises `WorkloadMissing`."""
        path = self._find(name, source_hash)
        if path is None:
            self.scan()
            path = self._find(name, source_hash)
        if path is not None and hashlib.sha256(path.read_bytes()).hexdigest() == source_hash:
            return path
        with self._lock:
            others = [known.path for versions in self._known.values() for known in versions if known.name == name]
        if others:
            raise WorkloadMissing(
                f"Workload {name!r} has changed since this run was submitted: {others[0]} no longer has the source "
                f"{source_hash[:12]} that the experiment compares."
            )
        folders = ", ".join(map(str, self._folders))
        raise WorkloadMissing(f"Workload {name!r} is not on this host: no file in {folders} defines it.")

    def _find(self, name: str, source_hash: str) -> Path | None:
        with self._lock:
            for path, versions in self._known.items():
                if any(known.name == name and known.source_hash == source_hash for known in versions):
                    return path
        return None

    def _describe(self, paths: Sequence[Path]) -> None:
        described = describe_files(paths)
        for path in paths:
            self._known[path] = [
                known if known.source_hash else replace(known, source_hash=_hash(path))
                for known in described
                if known.path == path
            ]

    def _record(self) -> None:
        """Write to the store what is not recorded yet; without a store it waits for the next scan."""
        for path in list(self._unrecorded):
            with self._database.write() as session:
                if path in self._signatures:
                    modified_at = datetime.fromtimestamp(self._signatures[path][0] / 1e9, UTC)
                    for described in self._known[path]:
                        record(session, described, modified_at)
                else:
                    mark_removed(session, path)
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


def _files(folder: Path) -> list[tuple[Path, Signature]]:
    """The Python files of a folder that may be workloads, with their signatures."""
    found = []
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_"):
            continue
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((path.resolve(), (status.st_mtime_ns, status.st_size)))
    return found


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return hashlib.sha256(b"").hexdigest()
