"""Scratch folders: one per attempt, gone with it; what a killed worker left is found here."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sqlalchemy import select

from server.db.base import table_of
from server.db.engine import Database
from server.db.tables import Run

_NAME = re.compile(r"(\d+)-(\d+)")


def scratch_of(data_dir: Path, run_id: int, attempt: int) -> Path:
    """Where an attempt's child works."""
    return data_dir / "scratch" / f"{run_id}-{attempt}"


def drop_left_scratch(database: Database, data_dir: Path) -> list[tuple[int, int]]:
    """Delete the folders of attempts that run no more, whichever worker of this data folder began them.

    Returns those attempts. Raises `StoreUnavailable`; nothing is dropped then.
    """
    named = ((path, _NAME.fullmatch(path.name)) for path in (data_dir / "scratch").glob("*-*"))
    folders = {(int(name[1]), int(name[2])): path for path, name in named if name is not None}
    if not folders:
        return []
    run = table_of(Run).c
    with database.read() as session:
        asked = select(run.id, run.attempt).where(run.id.in_({run_id for run_id, _ in folders}), run.state == "running")
        at_work = {(run_id, attempt) for run_id, attempt in session.connection().execute(asked)}
    left = [attempt for attempt in folders if attempt not in at_work]
    for attempt in left:
        shutil.rmtree(folders[attempt], ignore_errors=True)
    return left
