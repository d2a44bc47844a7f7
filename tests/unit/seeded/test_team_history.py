"""The history that tests of pages stand on is what they take it for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from seeded import TeamHistory, add_many_runs, write_team_history
from seeded.history import NUM_EXPERIMENTS, NUM_RUNS
from sqlalchemy import func, select

from server.db.tables import Event, Experiment, Run, Series, User
from server.metrics.read import window
from server.settings import Settings


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamHistory]:
    made = write_team_history(Settings(data_dir=tmp_path_factory.mktemp("history")))
    yield made
    made.database.dispose()


def test_it_has_every_sort_of_row(history: TeamHistory) -> None:
    with history.database.read() as session:
        experiments = session.scalars(select(Experiment)).all()
        runs = session.scalars(select(Run)).all()
        kinds = set(session.scalars(select(Event.kind).distinct()))
        people = session.scalars(select(User.name)).all()
    assert (len(experiments), len(runs)) == (NUM_EXPERIMENTS, NUM_RUNS)
    assert {one.state for one in experiments} == {"queued", "running", "ended", "cancelled"}
    assert {run.state for run in runs} == {"queued", "running", "completed", "failed", "cancelled"}
    assert {run.role for run in runs} == {"baseline", "candidate", "control", "benchmark"}
    verdicts = {recipe["verdict"] for one in experiments if one.comparison for recipe in one.comparison["recipes"]}
    assert verdicts == {"SAFE", "SAFE WITH CAUTION", "UNSAFE", "INCONCLUSIVE"}
    assert {"step_skipped", "non_finite", "zero_gradients", "benchmark_block"} <= kinds
    assert max(len(one.name) for one in experiments) == 200
    assert len({one.owner_id for one in experiments}) == len(people) - 1
    assert any(one.archived_at for one in experiments)


def test_its_series_hold_spikes_nan_infinities_and_many_points(history: TeamHistory) -> None:
    with history.database.read() as session:
        long = session.scalars(
            select(Series.num_points).join(Run, Run.id == Series.run_id)
            .where(Run.experiment_id == history.fifty_curves, Series.name == "train/loss")
        ).all()  # fmt: skip
        broken = session.scalars(
            select(Run.id).where(Run.experiment_id == history.hostile, Run.recipe_name == "16-mixed", Run.seed == 0)
        ).first()
        assert broken is not None
        values = window(session, broken, "train/loss").to_json()["values"]
    assert (len(long), min(long)) == (50, 100_000)
    assert (values[689], values[699], values[0] > 1) == ("Infinity", "NaN", True)


def test_thousands_of_rows_can_be_added(history: TeamHistory) -> None:
    add_many_runs(history.database, 1000)
    with history.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == NUM_RUNS + 1000
