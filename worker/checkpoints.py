"""Where a run's checkpoints lie on this host, and from which of them its next attempt goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core.config import RunConfig
from server.db.base import table_of
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Checkpoint, Event, Run
from worker.artifact_store import ArtifactStore
from worker.kept_checkpoints import at_fork, drop_others, forget_cancelled, names_kept_here
from worker.shared_checkpoints import at_hand, drop_shared, shared_runs

ENDED = (None, "completed", "cancelled")  # None: deleted for good

_log = logging.getLogger(__name__)


def with_checkpoints(
    database: Database, config: RunConfig, data_dir: Path, artifacts: ArtifactStore | None = None
) -> RunConfig:
    """The configuration with the run's folder and, for a later attempt, the checkpoints it may go on from."""
    if config.fork is not None:
        config = at_fork(config, folder_of(data_dir, config.fork.run), artifacts)
    if config.kind != "train":
        return config
    known: tuple[str, ...] = ()
    if config.attempt > 1:
        with database.read() as session:
            known = known_checkpoints(session, config.run_id)
    folder = folder_of(data_dir, config.run_id)
    known = at_hand(known, folder, config.run_id, artifacts)
    return msgspec.structs.replace(config, checkpoint_dir=str(folder), resume_from=known)


def known_checkpoints(session: Session, run_id: int) -> tuple[str, ...]:
    """Files the store knows of, the newest first.

    Only those: frames are stored in their order, so a checkpoint that is known comes with everything the run said
    before it, and no step is missing between what is stored and what the next attempt does.
    """
    rows = session.scalars(
        select(Event.payload)
        .where(Event.run_id == run_id, Event.kind == "checkpointed")
        .order_by(Event.attempt.desc(), Event.sequence.desc())
        .limit(20)
    )
    return tuple(str(payload["path"]) for payload in rows)


def drop_checkpoints(
    database: Database, run_id: int, data_dir: Path, artifacts: ArtifactStore | None = None, worker: str = ""
) -> None:
    """Free the disk of a run that is completed or cancelled, but for what it keeps; a failed one may be retried."""
    try:
        with database.read() as session:
            state = session.scalar(select(Run.state).where(Run.id == run_id))
        if state == "cancelled":
            forget_cancelled(database, [run_id])
        with database.read() as session:
            kept = names_kept_here(session, [run_id], worker).get(run_id, set())
    except StoreUnavailable:
        _log.warning("the checkpoints of run %d stay: the store does not answer", run_id)
        return
    if state in ENDED:
        drop_others(folder_of(data_dir, run_id), kept)
        drop_shared(artifacts, run_id, kept)


def drop_forgotten(
    database: Database, data_dir: Path, artifacts: ArtifactStore | None = None, worker: str = ""
) -> list[int]:
    """Free the disk of runs that ended elsewhere: cancelled while they were paused or queued, or deleted for good.

    Also of what a completed run kept and somebody dropped, and of what a fork fetched that has ended. What a fork that
    has not ended begins at stays. Returns the runs of which nothing is left. Raises `StoreUnavailable`; nothing is
    dropped then.
    """
    folders = {int(path.name[4:]): path for path in (data_dir / "checkpoints").glob("run-*") if path.name[4:].isdigit()}
    found = {*folders, *shared_runs(artifacts)}
    if not found:
        return []
    run, checkpoint = table_of(Run).c, table_of(Checkpoint).c
    with database.read() as session:  # over the tables: a deleted run may be restored and keeps its checkpoints
        rows = session.connection().execute(select(run.id, run.state).where(run.id.in_(list(found))))
        states = {run_id: state for run_id, state in rows}  # noqa: C416 - rows are typed only when unpacked
    forget_cancelled(database, [run_id for run_id, state in states.items() if state == "cancelled"])
    with database.read() as session:
        kept = names_kept_here(session, found, worker)
        keeps = set(session.connection().scalars(select(checkpoint.run_id).where(checkpoint.run_id.in_(list(found)))))
    over = [run_id for run_id in found if states.get(run_id) in ENDED]
    for run_id in over:
        drop_others(folder_of(data_dir, run_id), kept.get(run_id, set()))
        if run_id not in keeps:
            drop_shared(artifacts, run_id)
        elif states[run_id] == "cancelled":
            drop_shared(artifacts, run_id, kept.get(run_id, set()))
    return [run_id for run_id in over if run_id not in keeps]


def folder_of(data_dir: Path, run_id: int) -> Path:
    """The folder of one run's checkpoints."""
    return data_dir / "checkpoints" / f"run-{run_id}"
