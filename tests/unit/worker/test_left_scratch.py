"""Scratch folders that a killed worker left are dropped, those of attempts at work stay."""

from __future__ import annotations

from pathlib import Path

from queue_rows import Queue

from server.db.engine import Database
from server.queue.claim import claim
from worker.scratch import drop_left_scratch, scratch_of


def test_only_attempts_at_work_keep_their_folder(any_database: Database, tmp_path: Path) -> None:
    with any_database.write() as session:
        queue = Queue(session)
        first, second = queue.experiment(2)
        for _ in range(2):
            assert claim(session, 1, ["cpu"], 15) is not None
        queue.run(second).state = "queued"
    for run_id, attempt in ((first, 1), (first, 2), (second, 1), (99, 1)):
        (scratch_of(tmp_path, run_id, attempt) / "deep").mkdir(parents=True)
    (tmp_path / "scratch" / "mine-own").mkdir()
    assert sorted(drop_left_scratch(any_database, tmp_path)) == sorted([(first, 2), (second, 1), (99, 1)])
    assert {path.name for path in (tmp_path / "scratch").iterdir()} == {f"{first}-1", "mine-own"}
    assert drop_left_scratch(any_database, tmp_path / "nothing") == []
