"""Scratch folders: one per attempt, gone with it; what a killed worker left is found here."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sqlalchemy import select

from server.db.base import table_of
from server.db.engine import Database
from server.db.tables import Run

_NAME = re.compile(r"(\d+)-(\d+)(?:-\d+)?")


def scratch_of(data_dir: Path, run_id: int, attempt: int, node: int = 0) -> Path:
    """Where an attempt's child works; on further hosts, which may share this folder, each in one of its own."""
    return data_dir / "scratch" / (f"{run_id}-{attempt}-{node}" if node else f"{run_id}-{attempt}")


def drop_left_scratch(database: Database, data_dir: Path) -> list[tuple[int, int]]:
    """Delete the folders of attempts that run no more, whichever worker of this data folder began them.

    Returns those attempts. Raises `StoreUnavailable`; nothing is dropped then.
    """
    named = ((path, _NAME.fullmatch(path.name)) for path in (data_dir / "scratch").glob("*-*"))
    folders = [((int(name[1]), int(name[2])), path) for path, name in named if name is not None]
    if not folders:
        return []
    run = table_of(Run).c
    with database.read() as session:
        ids = {run_id for (run_id, _), _ in folders}
        asked = select(run.id, run.attempt).where(run.id.in_(ids), run.state == "running")
        at_work = {(run_id, attempt) for run_id, attempt in session.connection().execute(asked)}
    left = [(attempt, path) for attempt, path in folders if attempt not in at_work]
    for _, path in left:
        shutil.rmtree(path, ignore_errors=True)
    return list(dict.fromkeys(attempt for attempt, _ in left))
