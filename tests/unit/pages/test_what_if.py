"""The what-if explorer of the run page: bars, window, shares at the run's scale, scalers."""

from __future__ import annotations

from pathlib import Path

import pytest
from histories import add_experiment, add_run, frame, started
from sqlalchemy import update
from team import Team, one_line

from amp_core import events
from amp_core.telemetry.exponents import FIRST_ROW, MIN_EXPONENT, Histogram, empty, pack
from server.db.engine import Database
from server.db.tables import Experiment
from server.metrics.write import store_frames
from server.pages.what_if import explorer, fine
from server.runs.queries import find_run

PLAN = {"recipes": [{"name": "16-mixed", "precision": "16-mixed"}], "primary": {"metric": "loss", "unit": ""}}


def _histogram(counts: dict[int, int]) -> Histogram:
    made = empty()
    for exponent, count in counts.items():
        made.table[FIRST_ROW + exponent - MIN_EXPONENT, 0] = count
    return made


@pytest.fixture
def run_id(database: Database) -> int:
    experiment = add_experiment(database)
    made = add_run(
        database, experiment, recipe_name="16-mixed", recipe={"name": "16-mixed", "precision": "16-mixed"}
    )  # fmt: skip
    modules = {"a<b": _histogram({-40: 1, -20: 3}), "head": _histogram({0: 4})}
    sample = events.ExponentHistograms(
        step=5, kind="gradients", scale=1024.0, modules=list(modules), counts=pack(list(modules.values()))
    )
    with database.write() as session:
        session.execute(update(Experiment).where(Experiment.id == experiment).values(plan=PLAN))
        store_frames(session, made, 1, [started(), frame(2, sample)])
    return made


def test_it_begins_at_the_runs_own_scale(database: Database, run_id: int) -> None:
    with database.read() as session:
        shown = explorer(session, {"id": run_id})
    assert shown is not None
    assert (shown["step"], shown["power"], shown["best"]) == (5, 10, "2^15")
    assert [row["underflow"] for row in shown["rows"]] == ["12.50 %", "25.00 %", "0"]
    assert len(shown["bars"]) == 3
    assert shown["windows"]["fp16"] == [-25, -14, 15]
    assert shown["low"] <= -44
    assert {row["note"] for row in shown["scalers"]} == {"predicted"}


def test_a_share_that_is_not_zero_never_reads_as_zero() -> None:
    assert [fine(share) for share in (0.0, 1e-7, 0.3123)] == ["0", "< 0.01 %", "31.23 %"]


def test_the_page_holds_slider_formats_and_rows(database: Database, run_id: int, tmp_path: Path) -> None:
    page = one_line(Team(database, tmp_path).browser("viewer").get(f"/runs/{run_id}").text)
    assert 'type="range" data-whatif-power min="-24" max="40" step="1" value="10"' in page
    assert '<option value="e4m3">' in page
    assert "a&lt;b" in page
    assert "Other loss scalers on the recorded steps" in page


def test_predictions_are_checked_against_runs_that_measured_fp16(database: Database, run_id: int) -> None:
    with database.read() as session:
        experiment = find_run(session, run_id).experiment_id
        assert explorer(session, {"id": run_id})["others"] == []  # type: ignore[index]  # there are gradients
    fp16 = add_run(database, experiment, recipe_name="fp16", recipe={"name": "fp16", "precision": "16-mixed"}, seed=7)
    add_run(database, experiment, recipe_name="bf16", recipe={"name": "bf16", "precision": "bf16-mixed"})
    with database.read() as session:
        shown = explorer(session, {"id": run_id})
    assert shown is not None
    assert shown["others"] == [{"id": fp16, "label": "fp16, seed 7"}]


def test_a_run_without_gradients_has_no_explorer(database: Database) -> None:
    with database.read() as session:
        assert explorer(session, {"id": add_run(database)}) is None
