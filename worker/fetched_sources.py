"""Workload files that this host does not have, written from the text that another worker recorded in the store.

Only where the settings allow it: whoever puts a file into one worker's folder then runs code on this one, too.
"""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path

from sqlalchemy import select

from amp_core.script import sources
from server.db.engine import Database
from server.db.tables import Workload
from server.queue.claim import ClaimedRun
from worker.workload_files import WorkloadMissing, source_hash


def fetch_source(database: Database, claimed: ClaimedRun, data_dir: Path) -> Path:
    """The workload's file with exactly the source of the run, under ``data_dir``; written unless it is there.

    Raises `WorkloadMissing` if the store has no such text, or one that gives another hash.
    """
    folder = data_dir / "fetched" / claimed.source_hash
    path = folder / (re.sub(r"[^\w-]", "_", claimed.workload_name) + ".py")
    if path.exists() and source_hash(path) == claimed.source_hash:
        return path
    with database.read() as session:
        asked = select(Workload.source).where(
            Workload.name == claimed.workload_name, Workload.source_hash == claimed.source_hash
        )
        text = session.scalar(asked)
    if text is None:
        raise WorkloadMissing(
            f"Workload {claimed.workload_name!r} is not on this host, and no worker has recorded the source "
            f"{claimed.source_hash[:12]}."
        )
    made = folder.with_name(f".{uuid.uuid4().hex}")
    try:
        _write(text, made / path.name)
        if source_hash(made / path.name) != claimed.source_hash:
            raise WorkloadMissing(
                f"Workload {claimed.workload_name!r} is not on this host, and its recorded text does not give the "
                f"source {claimed.source_hash[:12]}: it is no plain UTF-8, or it reads files that were missing."
            )
        shutil.rmtree(folder, ignore_errors=True)
        made.replace(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return path


def _write(text: str, path: Path) -> None:
    """The workload file and the scripts it names, as `amp_core.script.sources.source_text` joined them."""
    path.parent.mkdir(parents=True)
    parts = sources.parts_of(text)
    path.write_bytes(parts[0].encode())
    named = list(sources.named_scripts(parts[0].encode(), path.parent))
    for script, content in zip(named, parts[1:], strict=False):
        if not script.resolve().is_relative_to(path.parent.resolve()):
            raise WorkloadMissing(f"the workload names {script.name} outside of its own folder: put it on this host")
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes(content.encode())
