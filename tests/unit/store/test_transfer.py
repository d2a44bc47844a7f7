"""What is exported comes back the same, in every format."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from histories import add_experiment, add_run, change_run, finished, frame, segment, started
from sqlalchemy import select

from amp_core import events
from server.db.engine import Database
from server.db.errors import StoreError
from server.db.tables import Experiment, Run
from server.db.upgrade import upgrade
from server.metrics.fold import fold
from server.metrics.read import series_names, window
from server.metrics.write import store_frames, store_log
from server.runs.forked import step_title
from server.transfer.files import FORMATS, source_of
from server.transfer.load import load
from server.transfer.tables import Selection, select_all, select_run
from server.transfer.write import write

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


@pytest.fixture
def history(database: Database) -> int:
    """Two attempts with everything a run can leave; the first is folded, the second is half folded."""
    config = {"workload": {"name": "w", "params": {"lr": 0.5}}}
    run_id = add_run(database, add_experiment(database, state="ended"), config=config)
    for attempt in (1, 2):
        change_run(database, run_id, attempt=attempt)
        with database.write() as session:
            picture = events.Artifact(name="p.png", media_type="image/png", content=PNG, step=3)
            store_frames(session, run_id, attempt, [
                started(1),
                segment(2, {"a": ([1, 2, 2], [0.1, math.nan, -math.inf]), "b,\"c\"": ([1], [5e-324])}),
                frame(3, picture),
                segment(4, {"a": ([3, 1], [math.inf, 1 / 3])}),
            ])  # fmt: skip
            fold(session, run_id, attempt)
            store_frames(session, run_id, attempt, [segment(5, {"a": ([9], [2.0**60])}), finished(6, loss=math.nan)])
            store_log(session, run_id, attempt, 0, 'é, "✓"\n line\n')
    change_run(database, run_id, state="completed", ended_at=None)
    return run_id


def told(database: Database) -> dict[str, list[Any]]:
    """An export as plain values, with ids replaced by their order."""

    class Sink:
        def __init__(self) -> None:
            self.tables: dict[str, list[Any]] = {}

        def row(self, table: str, row: dict[str, Any]) -> None:
            row = {key: value for key, value in row.items() if key not in ("id", "experiment_id", "run_id")}
            self.tables.setdefault(table, []).append(json.dumps(row, sort_keys=True))

    from server.transfer.tables import TABLES, points_of, rows_of

    sink = Sink()
    with database.read() as session:
        chosen = select_all(session)
    for table in TABLES:
        for row in rows_of(database, table, chosen):
            sink.row(table, row)
    sink.tables["points"] = [
        repr(
            (
                part.attempt,
                part.sequence,
                part.name,
                *(a.tolist() for a in (part.points.steps, part.points.values, part.points.times)),
            )
        )
        for part in points_of(database, chosen)
    ]
    return sink.tables


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_comes_back_the_same(database: Database, history: int, tmp_path: Path, form: str) -> None:
    with database.read() as session:
        chosen = select_all(session)
    target = tmp_path / f"export.{form}"
    assert write(database, chosen, form, target) == 14
    url = f"sqlite:///{tmp_path / 'other.sqlite3'}"
    upgrade(url)
    other = Database(url)
    with pytest.raises(StoreError, match="nobody has an account here"):
        load(other, source_of(target))
    add_run(other)  # other numbers, and an account
    from server.db.tables import User

    with other.write() as session:
        session.get_one(User, 1).name = "someone"
    with database.read() as session:
        owner = session.get_one(User, 1).name
    assert load(other, source_of(target)) == (1, 1)
    before, after = told(database), told(other)
    for table, rows in before.items():
        kept = after[table][-len(rows) :]
        assert kept == [row.replace(json.dumps(owner), '"someone"') if table == "experiments" else row for row in rows]
    with database.read() as session, other.read() as session_of_other:
        names = series_names(session, history)
        assert series_names(session_of_other, 2) == names
        shown = window(session, history, "a").to_json() | {"run_id": 0}
        assert repr(window(session_of_other, 2, "a").to_json() | {"run_id": 0}) == repr(shown)
    other.dispose()


FORK = {"run": 1, "step": 50, "name": "kept-50.pt", "seed": 0, "steps": 100}
PLANNED = FORK | {"horizon": 10, "experiment_id": 1, "worker": ""}


def exported(database: Database, path: Path) -> Path:
    with database.read() as session:
        chosen = select_all(session)
    write(database, chosen, "json", path)
    return path


def forked(database: Database, fork: Any, planned: Any) -> tuple[int, int]:
    """An experiment with one run, as forks."""
    experiment_id = add_experiment(database, state="ended")
    run_id = add_run(database, experiment_id, state="completed", config={"fork": fork})
    with database.write() as session:
        session.get_one(Experiment, experiment_id).plan = {"fork": planned}
    return experiment_id, run_id


def test_forks_follow_their_origins_or_say_that_these_are_elsewhere(database: Database, tmp_path: Path) -> None:
    origin_experiment = add_experiment(database, state="ended")
    origin = add_run(database, origin_experiment, state="completed")
    here = {"run": origin}
    forked(database, FORK | here, PLANNED | here | {"experiment_id": origin_experiment})
    forked(database, FORK | {"run": 4711}, PLANNED | {"run": 4711})
    assert load(database, source_of(exported(database, tmp_path / "all.json"))) == (3, 3)
    with database.read() as session:
        first, known, unknown = session.scalars(select(Run).order_by(Run.id.desc()).limit(3)).all()[::-1]
        assert first.id > origin
        assert known.config["fork"] == FORK | {"run": first.id}
        plan = known.experiment.plan["fork"]
        assert (plan["run"], plan["experiment_id"]) == (first.id, first.experiment_id)
        assert unknown.config["fork"] == FORK | {"run": 4711, "elsewhere": True}
        assert unknown.experiment.plan["fork"] == PLANNED | {"run": 4711, "elsewhere": True}
        assert step_title(unknown.config["fork"]) == "steps after step 50 of run 4711 of another database"


@pytest.mark.parametrize(
    "wrong", ["run 1", 5, [], {}, {"run": "1"}, FORK | {"step": 200}, FORK | {"run": 0}, FORK | {"name": 1}]
)
@pytest.mark.parametrize("place", ["plan", "config"])
def test_a_malformed_fork_is_refused_and_nothing_is_added(
    database: Database, tmp_path: Path, wrong: Any, place: str
) -> None:
    if place == "plan":
        forked(database, FORK, PLANNED | wrong if isinstance(wrong, dict) and len(wrong) > 1 else wrong)
    else:
        forked(database, wrong, PLANNED)
    path = exported(database, tmp_path / "all.json")
    with pytest.raises(StoreError, match=f"its {place} (has a malformed fork|forks from no step)"):
        load(database, source_of(path))
    with database.read() as session:
        assert len(session.scalars(select(Experiment.id)).all()) == 1


def test_one_run_and_nothing_by_halves(database: Database, history: int, tmp_path: Path) -> None:
    add_run(database)
    with database.read() as session:
        chosen = select_run(session, history)
    assert write(database, chosen, "json", tmp_path / "run.json") == 14
    with pytest.raises(StoreError, match="is there already"):
        write(database, chosen, "json", tmp_path / "run.json")
    with pytest.raises(Exception, match="No row was found"):
        write(database, Selection([], [99]), "csv", tmp_path / "half")
    assert sorted(path.name for path in tmp_path.iterdir() if "half" in path.name) == []
    with pytest.raises(StoreError, match="is no export"):
        source_of(tmp_path)
