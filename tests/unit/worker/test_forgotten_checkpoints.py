"""Checkpoints of runs that ended while no worker held them are dropped."""

from __future__ import annotations

from pathlib import Path

from queue_rows import Queue

from server.db.engine import Database
from server.queue.cancel import cancel_run
from server.queue.pause import pause_run
from worker.checkpoints import drop_forgotten, folder_of


def test_only_what_can_never_be_resumed_is_dropped(database: Database, tmp_path: Path) -> None:
    with database.write() as session:
        queue = Queue(session)
        queued, paused, cancelled, failed = queue.experiment(4)
        pause_run(session, paused)
        pause_run(session, cancelled)
        cancel_run(session, cancelled)
        queue.run(failed).state = "failed"
    gone = 99
    for run_id in (queued, paused, cancelled, failed, gone):
        folder_of(tmp_path, run_id).mkdir(parents=True)
    (tmp_path / "checkpoints" / "run-notes").mkdir()
    assert sorted(drop_forgotten(database, tmp_path)) == [cancelled, gone]
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {
        f"run-{queued}", f"run-{paused}", f"run-{failed}", "run-notes",
    }  # fmt: skip
    assert drop_forgotten(database, tmp_path / "nowhere") == []
