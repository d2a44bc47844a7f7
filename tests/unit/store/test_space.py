"""Deleting, retention, vacuum, backup and restore."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from histories import add_experiment, add_run, change_run, segment
from sqlalchemy import func, select, text, update
from team import Team

from server.db.backup import back_up, restore, vacuum
from server.db.engine import Database
from server.db.errors import StoreError
from server.db.tables import Audit, Axis, Base, Chunk, Experiment, Fold, Project, Run, Segment, Series
from server.metrics.fold import fold
from server.metrics.leftovers import fold_leftovers
from server.metrics.write import store_frames, store_log
from server.runs.delete import delete_expired, purge_deleted

OF_RUNS = ("series", "segments", "chunks", "axes", "folds", "logs", "events", "artifacts", "attempts", "run_parameters")


def ended_run(database: Database, experiment_id: int, *, size: int = 50, seed: int = 0) -> int:
    run_id = add_run(database, experiment_id)
    with database.write() as session:
        values = np.random.default_rng(seed).normal(size=size)
        store_frames(session, run_id, 1, [segment(1, {"a": (range(size), values), "b": ([1], [1.0])})])
        fold(session, run_id, 1)
        store_frames(session, run_id, 1, [segment(2, {"a": ([size], [0.0])})])
        store_log(session, run_id, 1, 0, "hello")
    change_run(database, run_id, state="completed", ended_at=datetime.now(UTC))
    return run_id


def count_rows(database: Database) -> dict[str, int]:
    with database.read() as session:
        return {
            table.name: session.scalar(select(func.count()).select_from(table)) or 0
            for table in Base.metadata.sorted_tables
        }


def test_deleting_frees_every_row_and_is_told(any_database: Database, tmp_path: Path) -> None:
    team = Team(any_database, tmp_path)
    experiment_id = add_experiment(any_database, state="ended")
    runs = [ended_run(any_database, experiment_id) for _ in range(2)]
    admin, owner_not = team.client("admin"), team.client("submitter")
    with any_database.write() as session:
        session.execute(update(Experiment).values(owner_id=team.ids["admin"]))
    assert owner_not.delete(f"/api/v1/runs/{runs[0]}").status_code == 403
    assert admin.delete(f"/api/v1/runs/{runs[0]}").status_code == 204
    assert admin.delete(f"/api/v1/runs/{runs[0]}").status_code == 404
    change_run(any_database, runs[1], state="running")
    refused = admin.delete(f"/api/v1/experiments/{experiment_id}")
    assert (refused.status_code, "cancel it first" in refused.json()["detail"]) == (409, True)
    change_run(any_database, runs[1], state="failed")
    assert owner_not.delete(f"/api/v1/experiments/{experiment_id}").status_code == 403
    assert admin.delete(f"/api/v1/experiments/{experiment_id}").status_code == 204
    assert admin.get(f"/api/v1/experiments/{experiment_id}").status_code == 404
    assert purge_deleted(any_database, undo_s=600) == 0
    assert count_rows(any_database)["runs"] == 2
    assert purge_deleted(any_database, undo_s=0) == 1  # the experiment, and its runs with it
    rows = count_rows(any_database)
    assert {name: rows[name] for name in (*OF_RUNS, "runs", "experiments")} == dict.fromkeys(
        (*OF_RUNS, "runs", "experiments"), 0
    )
    with any_database.read() as session:
        actions = session.scalars(select(Audit.action).order_by(Audit.id)).all()
    assert [action for action in actions if action.endswith("delete")] == ["run.delete", "experiment.delete"]


def test_retention_deletes_what_ended_long_ago_unless_it_is_kept(any_database: Database, tmp_path: Path) -> None:
    ids = {name: add_experiment(any_database, state="ended") for name in ("old", "kept", "young", "longer", "running")}
    long_ago = datetime.now(UTC) - timedelta(days=40)
    with any_database.write() as session:
        session.execute(update(Experiment).values(ended_at=long_ago))
        session.get_one(Experiment, ids["young"]).ended_at = datetime.now(UTC)
        session.get_one(Experiment, ids["kept"]).tags = ["keep"]
        session.get_one(Experiment, ids["running"]).state = "running"
        session.get_one(Project, session.get_one(Experiment, ids["longer"]).project_id).retention_days = 90
    assert delete_expired(any_database, None) == []
    assert delete_expired(any_database, 30) == [ids["old"]]
    admin = Team(any_database, tmp_path).client("admin")
    project = next(item for item in admin.get("/api/v1/projects").json()["items"] if item["retention_days"] == 90)
    changed = admin.patch(f"/api/v1/projects/{project['id']}", json={"retention_days": 1})
    assert changed.json()["retention_days"] == 1
    assert delete_expired(any_database, None) == [ids["longer"]]
    assert admin.patch("/api/v1/projects/999", json={"retention_days": 1}).status_code == 404


def test_deleting_half_and_vacuuming_halves_the_file(database: Database) -> None:
    experiments = [add_experiment(database, state="ended") for _ in range(2)]
    for number in range(200):
        ended_run(database, experiments[number % 2], size=2000, seed=number)
    vacuum(database.url)
    path = Path(database.url.removeprefix("sqlite:///"))
    full = path.stat().st_size
    with database.write() as session:
        session.execute(text("DELETE FROM experiments WHERE id = :id"), {"id": experiments[0]})
    sizes = vacuum(database.url)
    assert sizes.after < sizes.before
    assert 0.4 < path.stat().st_size / full < 0.6


def test_leftovers_of_ended_attempts_are_folded(any_database: Database) -> None:
    run_id = add_run(any_database)
    with any_database.write() as session:
        store_frames(session, run_id, 1, [segment(1, {"a": ([1, 2], [1.0, 2.0])})])
    assert fold_leftovers(any_database) == 0
    change_run(any_database, run_id, state="failed")
    assert (fold_leftovers(any_database), fold_leftovers(any_database)) == (1, 0)
    with any_database.read() as session:
        assert session.scalar(select(func.count()).select_from(Segment)) == 0
        assert session.scalar(select(func.count()).select_from(Chunk)) == 1
        assert session.get_one(Fold, (run_id, 1)).sequence == 1
        assert session.get_one(Series, (run_id, 1, "a")).num_points == 2
        assert session.scalar(select(func.count()).select_from(Axis)) == 1


def test_a_backup_comes_back_and_the_former_content_is_kept(database: Database, tmp_path: Path) -> None:
    run_id = ended_run(database, add_experiment(database))
    copy = tmp_path / "copy.sqlite3"
    with database.read() as reader:  # in use
        reader.execute(text("SELECT 1"))
        assert back_up(database.url, copy) == copy.stat().st_size
    with pytest.raises(StoreError, match="is there already"):
        back_up(database.url, copy)
    ended_run(database, add_experiment(database))
    database.dispose()
    former = restore(database.url, copy)
    with database.read() as session:
        assert session.scalars(select(Run.id)).all() == [run_id]
    assert former is not None
    with closing(sqlite3.connect(former)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)


def test_only_whole_backups_are_restored(database: Database, tmp_path: Path) -> None:
    before = Path(database.url.removeprefix("sqlite:///")).read_bytes()
    other = tmp_path / "other.sqlite3"
    other.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match="is no ampboard database"):
        restore(database.url, other)
    damaged = bytearray(before)
    damaged[40_000:60_000] = bytes(20_000)
    other.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"is damaged|is no ampboard database"):
        restore(database.url, other)
    assert Path(database.url.removeprefix("sqlite:///")).read_bytes() == before


def test_a_database_server_is_told_of_its_own_tools() -> None:
    with pytest.raises(StoreError, match="pg_dump"):
        back_up("postgresql+psycopg://host/name", Path("x"))
