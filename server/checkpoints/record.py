"""What a run's child says of checkpoints that stay becomes rows."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath, PureWindowsPath

from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core import events
from server.checkpoints.queries import names_needed
from server.db.tables import Checkpoint, Run, Worker


def note_kept(session: Session, run: Run, event: events.Checkpointed, at: datetime) -> None:
    """A checkpoint that stays was written; one of the same step takes the place of an earlier attempt's.

    Not while a fork that has not ended begins at the earlier one: its runs know that file and its worker by name.
    """
    name = PureWindowsPath(PurePosixPath(event.path).name).name[:80]
    row = session.scalar(select(Checkpoint).where(Checkpoint.run_id == run.id, Checkpoint.step == event.step))
    if row is None:
        row = Checkpoint(run_id=run.id, step=event.step)
        session.add(row)
    elif row.name != name:
        # After a fork that is being submitted.
        session.execute(select(Run.id).where(Run.id == run.id).with_for_update())
        if row.name in names_needed(session, [run.id]).get(run.id, ()):
            return
    worker = session.get(Worker, run.worker_id) if run.worker_id is not None else None
    row.attempt, row.num_bytes, row.is_shared, row.created_at = run.attempt, event.num_bytes, False, at
    row.name = name
    row.worker_name = worker.name if worker is not None else ""
