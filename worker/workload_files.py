"""Workload files on this host: where they lie, when they change, and which holds a given version."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import amp_core
from amp_core.script import sources
from server.queue.claim import ClaimedRun
from server.settings import Settings

BUNDLED = Path(amp_core.__file__).parent / "workloads"

MAX_SOURCE_CHARS = 1_000_000

Signature = tuple[int, int]  # modification time in ns, size


class WorkloadMissing(Exception):
    """This host does not have the version of the workload that a run was submitted with; the message says why."""


def workload_folders(settings: Settings) -> list[Path]:
    """The bundled workloads' folder and those of the settings."""
    return [BUNDLED, *settings.workloads]


def workload_files(folder: Path) -> Iterator[tuple[Path, Signature]]:
    """The Python files of a folder that may define workloads, with what tells that they changed."""
    for path in sorted(folder.glob("*.py")):
        if path.name.startswith("_"):
            continue
        with contextlib.suppress(OSError):  # gone meanwhile
            yield path.resolve(), sources.changed_at(path)


def source_hash(path: Path) -> str:
    """SHA-256 over the file and the script it may name; of nothing when it cannot be read."""
    try:
        return sources.source_hash(path)
    except OSError:
        return hashlib.sha256(b"").hexdigest()


def source_text(path: Path, expected_hash: str) -> str | None:
    """The text of a version; None when the file no longer is that version, cannot be read or is too long."""
    try:
        text = sources.source_text(path, MAX_SOURCE_CHARS)
        return text if sources.source_hash(path) == expected_hash else None
    except OSError:
        return None


def locate(claimed: ClaimedRun, folders: Sequence[Path]) -> Path:
    """The file with exactly the source that the run was submitted with. Raises `WorkloadMissing`."""
    paths = [path for folder in folders for path, _ in workload_files(folder)]
    submitted = Path(claimed.config.get("workload", {}).get("path", ""))
    for path in sorted(paths, key=lambda path: path != submitted):
        if source_hash(path) == claimed.source_hash:
            return path
    if submitted in paths:
        raise WorkloadMissing(
            f"Workload {claimed.workload_name!r} has changed since this run was submitted: {submitted} no longer has "
            f"the source {claimed.source_hash[:12]} that the experiment compares."
        )
    raise WorkloadMissing(
        f"Workload {claimed.workload_name!r} is not on this host: no file in {', '.join(map(str, folders))} has the "
        f"source {claimed.source_hash[:12]}."
    )
