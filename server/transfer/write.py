"""An export, written whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from server.db.engine import Database
from server.db.errors import StoreError, StoreUnavailable
from server.transfer.files import sink_for
from server.transfer.tables import TABLES, Selection, points_of, rows_of


def write(database: Database, chosen: Selection, form: str, target: Path) -> int:
    """Write the selection to ``target`` and return its number of points.

    Raises:
        StoreError: when the target is there already.
        StoreUnavailable: when it cannot be written; nothing of it is left.
    """
    if target.exists():
        raise StoreError(f"{target} is there already: name a file or folder that is not")
    partial = target.with_name(target.name + ".partial")
    _remove(partial)
    num_points = 0
    try:
        sink = sink_for(form, partial)
        try:
            for table in TABLES:
                for row in rows_of(database, table, chosen):
                    sink.row(table, row)
            for part in points_of(database, chosen):
                sink.points(part)
                num_points += len(part.points)
        finally:
            sink.close()
        partial.rename(target)
    except OSError as error:
        raise StoreUnavailable(f"{target} could not be written ({error}): free some space, or name another") from error
    finally:
        _remove(partial)
    return num_points


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
