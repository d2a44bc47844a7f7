"""Kept checkpoints on this host: which files stay, which are shared, and where a fork finds the one it begins at."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from pathlib import Path

import msgspec
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from amp_core.config import RunConfig
from server.checkpoints.queries import names_needed
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Checkpoint, Run
from server.settings import Settings
from worker.artifact_store import ArtifactStore
from worker.registry import worker_name
from worker.shared_checkpoints import shared_folder

_log = logging.getLogger(__name__)


def at_fork(config: RunConfig, folder: Path, artifacts: ArtifactStore | None) -> RunConfig:
    """The configuration of a fork with the place of its checkpoint here, in the folder of the run that made it.

    It is fetched from the shared store if it is not there; if it is nowhere the run itself says so.
    """
    fork = config.fork
    if fork is None:
        return config
    path = folder / fork.name
    if not path.exists() and artifacts is not None:
        try:
            artifacts.get(f"{shared_folder(fork.run)}/{fork.name}", path)
        except Exception as error:  # noqa: BLE001 - any file system behind fsspec has errors of its own
            _log.warning("checkpoint %s of run %d cannot be fetched: %s", fork.name, fork.run, error)
    return msgspec.structs.replace(config, fork=msgspec.structs.replace(fork, path=str(path)))


def names_kept_here(session: Session, run_ids: Collection[int], worker: str) -> dict[int, set[str]]:
    """The files that stay on this host, by run: those made here, and those that a fork which has not ended may need."""
    needed = names_needed(session, run_ids)
    rows = session.execute(
        select(Checkpoint.run_id, Checkpoint.name, Checkpoint.worker_name).where(Checkpoint.run_id.in_(run_ids))
    )
    kept = {run_id: set(names) for run_id, names in needed.items()}
    for run_id, name, made_by in rows:
        if made_by == worker or not made_by or run_id in needed:
            kept.setdefault(run_id, set()).add(name)
    return kept


def drop_others(folder: Path, kept: Collection[str]) -> None:
    """Delete the files of a run that has ended but those of these names; an empty folder goes, too."""
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.glob("*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def forget_cancelled(database: Database, run_ids: Collection[int]) -> None:
    """A cancelled run keeps what forks that have not ended begin at, and nothing else. Raises `StoreUnavailable`.

    Without their rows nobody asks for the other files.
    """
    with database.read() as session:
        of_runs = {row.run_id for row in _unneeded(session, run_ids)}
    if of_runs:
        with database.write() as session:
            # After a fork that is being submitted; none begins at a cancelled run from now on.
            session.execute(select(Run.id).where(Run.id.in_(of_runs)).order_by(Run.id).with_for_update())
            for row in _unneeded(session, of_runs):
                session.delete(row)


def _unneeded(session: Session, run_ids: Collection[int]) -> list[Checkpoint]:
    needed = names_needed(session, run_ids)
    rows = session.scalars(select(Checkpoint).where(Checkpoint.run_id.in_(run_ids)))
    return [row for row in rows if row.name not in needed.get(row.run_id, ())]


def share_kept(
    database: Database, settings: Settings, artifacts: ArtifactStore | None, run_id: int | None = None
) -> int:
    """Copy what this worker keeps (of one run, or of all) to the shared store, and say so; return how many.

    Without a store nothing is done. What cannot be copied now is tried again in the worker's rounds.
    """
    if artifacts is None:
        return 0
    mine = select(Checkpoint.id, Checkpoint.run_id, Checkpoint.name, Checkpoint.num_bytes).where(
        Checkpoint.worker_name == worker_name(settings), Checkpoint.is_shared.is_(False)
    )
    try:
        with database.read() as session:
            rows = session.execute(mine if run_id is None else mine.where(Checkpoint.run_id == run_id)).all()
        return sum(_share(database, settings, artifacts, *row) for row in rows if row[3] <= settings.max_artifact_bytes)
    except StoreUnavailable as error:
        _log.warning("kept checkpoints are not shared yet: %s", error)
        return 0


def _share(
    database: Database, settings: Settings, artifacts: ArtifactStore, row_id: int, run_id: int, name: str, _bytes: int
) -> bool:
    path = settings.data_dir / "checkpoints" / f"run-{run_id}" / name
    try:
        if name not in artifacts.names(shared_folder(run_id)):
            artifacts.put(path, f"{shared_folder(run_id)}/{name}")
    except Exception as error:  # noqa: BLE001 - as above
        _log.warning("checkpoint %s of run %d is not shared: %s", name, run_id, error)
        return False
    with database.write() as session:
        named = (Checkpoint.id == row_id, Checkpoint.name == name)  # a later attempt may have written it anew
        session.execute(update(Checkpoint).where(*named).values(is_shared=True))
    return True
