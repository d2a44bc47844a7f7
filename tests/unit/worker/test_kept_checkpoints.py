"""Which checkpoint files stay on a host and in the shared store, and where a fork finds the one it begins at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from queue_rows import START, Queue
from sqlalchemy import select

from amp_core.config import Fork, RunConfig, WorkloadRef, parse_recipe
from server.db.engine import Database
from server.db.tables import Checkpoint, Experiment
from server.settings import Settings
from worker.artifact_store import ArtifactStore
from worker.checkpoints import drop_checkpoints, drop_forgotten, folder_of, with_checkpoints
from worker.kept_checkpoints import share_kept
from worker.shared_checkpoints import CheckpointUploads, shared_folder

MINE, OTHER = "host-1", "host-2"


def name_at(step: int) -> str:
    return f"step-{step:010d}-{'ab' * 16}.pt"


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(str(tmp_path / "shared"))


class Rows:
    """A run in a state, its files, and the rows of those it keeps."""

    def __init__(self, database: Database, data_dir: Path) -> None:
        self.database, self.data_dir = database, data_dir
        with database.write() as session:
            Queue(session)

    def run(self, state: str, *, files: tuple[int, ...] = (), kept: tuple[int, ...] = (), worker: str = MINE) -> int:
        with self.database.write() as session:
            queue = Queue.over(session)
            (run_id,) = queue.experiment()
            queue.run(run_id).state = state
            for step in kept:
                session.add(
                    Checkpoint(
                        run_id=run_id, step=step, attempt=1, name=name_at(step), num_bytes=4, worker_name=worker,
                        created_at=START,
                    )
                )  # fmt: skip
        folder = folder_of(self.data_dir, run_id)
        folder.mkdir(parents=True)
        for step in files:
            (folder / name_at(step)).write_bytes(b"data")
        return run_id

    def forked(self, run_id: int) -> int:
        """A queued experiment that begins at a checkpoint of the run; its own run."""
        with self.database.write() as session:
            (fork_id,) = Queue.over(session).experiment()
            experiment = session.get_one(Experiment, Queue.over(session).run(fork_id).experiment_id)
            experiment.plan = {"fork": {"run": run_id, "step": 5, "name": name_at(5)}}
        return fork_id

    def left(self, run_id: int) -> list[int]:
        folder = folder_of(self.data_dir, run_id)
        return sorted(int(path.name[5:15]) for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def rows(database: Database, tmp_path: Path) -> Rows:
    return Rows(database, tmp_path)


def test_a_completed_run_leaves_what_it_keeps(rows: Rows, store: ArtifactStore, tmp_path: Path) -> None:
    run_id = rows.run("completed", files=(5, 8, 9), kept=(5,))
    for step in (5, 9):
        store.put(folder_of(tmp_path, run_id) / name_at(step), f"{shared_folder(run_id)}/{name_at(step)}")
    drop_checkpoints(rows.database, run_id, tmp_path, store, MINE)
    assert rows.left(run_id) == [5]
    assert store.names(shared_folder(run_id)) == [name_at(5)]


@pytest.mark.parametrize(("state", "left"), [("cancelled", []), ("failed", [5, 8]), ("running", [5, 8])])
def test_other_ends_keep_nothing_or_all(rows: Rows, tmp_path: Path, state: str, left: list[int]) -> None:
    run_id = rows.run(state, files=(5, 8), kept=(5,))
    drop_checkpoints(rows.database, run_id, tmp_path, None, MINE)
    assert rows.left(run_id) == left
    with rows.database.read() as session:
        assert len(session.scalars(select(Checkpoint)).all()) == (state != "cancelled")


def test_rounds_free_what_nobody_keeps_any_more(rows: Rows, store: ArtifactStore, tmp_path: Path) -> None:
    kept = rows.run("completed", files=(5, 8), kept=(5,))
    dropped = rows.run("completed", files=(5,))
    cancelled = rows.run("cancelled", files=(5,), kept=(5,))
    for run_id in (kept, dropped):
        store.put(folder_of(tmp_path, run_id) / name_at(5), f"{shared_folder(run_id)}/{name_at(5)}")
    assert sorted(drop_forgotten(rows.database, tmp_path, store, MINE)) == [dropped, cancelled]
    assert (rows.left(kept), rows.left(dropped), rows.left(cancelled)) == ([5], [], [])
    assert store.names("checkpoints") == [f"run-{kept}"]
    with rows.database.read() as session:
        assert [row.run_id for row in session.scalars(select(Checkpoint))] == [kept]


def test_what_was_fetched_goes_when_the_fork_has_ended(rows: Rows, tmp_path: Path) -> None:
    run_id = rows.run("completed", files=(5,), kept=(5,), worker=OTHER)
    fork_id = rows.forked(run_id)
    drop_forgotten(rows.database, tmp_path, None, MINE)
    assert rows.left(run_id) == [5]
    with rows.database.write() as session:
        Queue.over(session).run(fork_id).state = "completed"
    drop_forgotten(rows.database, tmp_path, None, MINE)
    assert rows.left(run_id) == []


@pytest.mark.parametrize("by_round", [False, True])
def test_a_cancelled_run_keeps_what_an_open_fork_begins_at(
    rows: Rows, store: ArtifactStore, tmp_path: Path, by_round: bool
) -> None:
    run_id = rows.run("cancelled", files=(5, 8), kept=(5, 8))
    for step in (5, 8):
        store.put(folder_of(tmp_path, run_id) / name_at(step), f"{shared_folder(run_id)}/{name_at(step)}")
    fork_id = rows.forked(run_id)
    if by_round:
        assert drop_forgotten(rows.database, tmp_path, store, MINE) == []
    else:
        drop_checkpoints(rows.database, run_id, tmp_path, store, MINE)
    assert (rows.left(run_id), store.names(shared_folder(run_id))) == ([5], [name_at(5)])
    with rows.database.read() as session:
        assert [row.step for row in session.scalars(select(Checkpoint))] == [5]
    with rows.database.write() as session:
        Queue.over(session).run(fork_id).state = "completed"
    assert drop_forgotten(rows.database, tmp_path, store, MINE) == [run_id]
    assert (rows.left(run_id), store.names("checkpoints")) == ([], [])
    with rows.database.read() as session:
        assert session.scalars(select(Checkpoint)).all() == []


def test_a_file_that_an_open_fork_begins_at_stays_though_the_row_names_another(rows: Rows, tmp_path: Path) -> None:
    run_id = rows.run("completed", files=(5, 8), kept=(9,), worker=OTHER)
    rows.forked(run_id)
    drop_forgotten(rows.database, tmp_path, None, MINE)
    assert rows.left(run_id) == [5]


def test_what_is_kept_is_shared_and_marked(rows: Rows, store: ArtifactStore, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, worker_name=MINE, max_artifact_bytes=10)
    run_id = rows.run("running", files=(5, 8), kept=(5, 8))
    other = rows.run("completed", files=(5,), kept=(5,), worker=OTHER)
    assert share_kept(rows.database, settings, None) == 0
    assert share_kept(rows.database, settings, store, other) == 0, "another worker's business"
    assert share_kept(rows.database, settings, store) == 2
    assert store.names(shared_folder(run_id)) == [name_at(5), name_at(8)]
    with rows.database.read() as session:
        marked = {(row.run_id, row.step): row.is_shared for row in session.scalars(select(Checkpoint))}
    assert marked == {(run_id, 5): True, (run_id, 8): True, (other, 5): False}
    assert share_kept(rows.database, settings, store) == 0, "once"


def test_what_cannot_be_shared_is_not_marked(rows: Rows, store: ArtifactStore, tmp_path: Path) -> None:
    rows.run("completed", kept=(5,))
    for limit in (10, 3):  # gone from the disk; above the limit
        settings = Settings(data_dir=tmp_path, worker_name=MINE, max_artifact_bytes=limit)
        assert share_kept(rows.database, settings, store) == 0
    with rows.database.read() as session:
        assert [row.is_shared for row in session.scalars(select(Checkpoint))] == [False]


def test_copies_for_resuming_do_not_push_kept_ones_out(store: ArtifactStore, tmp_path: Path) -> None:
    uploads = CheckpointUploads(store, 7, 100, kept_steps=(1,))
    for step in (1, 2, 3, 4):
        path = tmp_path / name_at(step)
        path.write_bytes(b"data")
        uploads.offer(path)
        deadline = time.monotonic() + 10
        while path.name not in store.names(shared_folder(7)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    uploads.finish(10)
    assert store.names(shared_folder(7)) == [name_at(1), name_at(3), name_at(4)]


def _forked_config(run_id: int, **fields: Any) -> RunConfig:
    fork = Fork(run=run_id, step=5, name=name_at(5), seed=0, steps=10)
    workload = WorkloadRef(name="w", path="w.py")
    return RunConfig(run_id=99, attempt=1, workload=workload, recipe=parse_recipe("fp32"), fork=fork, **fields)


def test_a_fork_finds_its_checkpoint_here_or_fetches_it(rows: Rows, store: ArtifactStore, tmp_path: Path) -> None:
    run_id = rows.run("completed", files=(5,), kept=(5,))
    here = folder_of(tmp_path, run_id) / name_at(5)
    found = with_checkpoints(rows.database, _forked_config(run_id), tmp_path)
    assert found.fork is not None
    assert found.fork.path == str(here)
    store.put(here, f"{shared_folder(run_id)}/{name_at(5)}")
    elsewhere = tmp_path / "elsewhere"
    found = with_checkpoints(rows.database, _forked_config(run_id), elsewhere, store)
    assert found.fork is not None
    assert Path(found.fork.path) == folder_of(elsewhere, run_id) / name_at(5)
    assert Path(found.fork.path).read_bytes() == b"data"
    gone = with_checkpoints(rows.database, _forked_config(run_id), tmp_path / "third")
    assert gone.fork is not None
    assert not Path(gone.fork.path).exists(), "the run itself says so"
