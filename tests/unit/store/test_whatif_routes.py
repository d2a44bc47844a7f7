"""What-if over REST: shares by module, the best scale, scalers on a recorded trajectory, errors of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from histories import add_run, change_run, frame, segment
from team import Team

from amp_core import events
from amp_core.telemetry.exponents import FIRST_ROW, MIN_EXPONENT, Histogram, empty, pack
from server.db.engine import Database
from server.metrics.write import store_frames


@pytest.fixture
def client(database: Database, tmp_path: Path) -> TestClient:
    return Team(database, tmp_path).client("viewer")


def _histogram(counts: dict[int, int]) -> Histogram:
    made = empty()
    for exponent, count in counts.items():
        made.table[FIRST_ROW + exponent - MIN_EXPONENT, 0] = count
    return made


def _sample(sequence: int, step: int, modules: dict[str, Histogram]) -> events.Frame:
    counts = pack(list(modules.values()))
    event = events.ExponentHistograms(step=step, kind="gradients", scale=1.0, modules=list(modules), counts=counts)
    return frame(sequence, event)


def _ask(client: TestClient, run_id: int, **query: object) -> Any:
    answer = client.get(f"/api/v1/runs/{run_id}/whatif", params=query)  # type: ignore[arg-type]  # words and numbers
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def run_id(database: Database) -> int:
    made = add_run(database)
    first = _sample(1, 1, {"a": _histogram({-30: 3, -10: 1}), "b": _histogram({0: 1})})
    with database.write() as session:
        store_frames(session, made, 1, [first, _sample(2, 5, {"a": _histogram({-20: 2})})])
    return made


def test_shares_by_module_at_a_scale(client: TestClient, run_id: int) -> None:
    plain = _ask(client, run_id, step=1)
    assert (plain["step"], plain["steps"], plain["whole"]["underflow"]) == (1, [1, 5], 0.6)
    assert {row["module"]: row["underflow"] for row in plain["modules"]} == {"a": 0.75, "b": 0.0}
    scaled = _ask(client, run_id, step=1, scale=2.0**16)
    assert (scaled["whole"]["underflow"], scaled["whole"]["overflow"]) == (0.0, 0.2)
    assert {row["module"]: row["overflow"] for row in scaled["modules"]} == {"a": 0.0, "b": 1.0}
    assert _ask(client, run_id)["step"] == 5


def test_the_best_scale_is_for_all_steps(client: TestClient, run_id: int) -> None:
    best = _ask(client, run_id)["best"]
    assert (best["scale"], best["underflow"], best["lossless_scale"]) == (2.0**15, 0.0, 2.0**6)


def test_tensors_have_scales_of_their_own_in_eight_bits(client: TestClient, run_id: int) -> None:
    modules = _ask(client, run_id, step=1, format="e5m2")["modules"]
    assert [row["scale"] for row in modules] == [2.0**25, 2.0**15]
    assert [row["overflow"] for row in modules] == [0.0, 0.0]


def test_scalers_are_replayed_and_the_runs_own_agrees(client: TestClient, database: Database, run_id: int) -> None:
    own = {"kind": "dynamic", "init_scale": 2.0**17, "growth_interval": 2}
    change_run(database, run_id, recipe={"name": "16-mixed", "precision": "16-mixed", "scaler": own})
    scales = [2.0**17, 2.0**16, 2.0**15, 2.0**15, 2.0**16]
    skipped = [1.0, 1.0, 0.0, 0.0, 1.0]
    columns = {"amp/loss_scale": (range(1, 6), scales), "amp/skipped": (range(1, 6), skipped)}
    with database.write() as session:
        store_frames(session, run_id, 1, [segment(3, columns)])
    found = {row["name"]: row for row in _ask(client, run_id)["scalers"]}
    assert found["this run's own"]["same_as_run"] is True
    assert found["this run's own"]["skipped_steps"] == [1, 2, 5]
    assert found["dynamic (PyTorch)"]["skipped_steps"] == [1]
    assert found["static, best for the recorded steps"]["skipped"] == 0


def test_a_prediction_is_measured_by_another_run(client: TestClient, database: Database, run_id: int) -> None:
    other = add_run(database)
    rows = [
        events.ModuleStatistics(module="a", num_elements=4, zero_fraction=0.5, underflow_fraction=0.5, max_abs=1.0),
        events.ModuleStatistics(module="b", num_elements=1, zero_fraction=0.0, underflow_fraction=0.0, max_abs=1.0),
    ]
    with database.write() as session:
        store_frames(session, other, 1, [frame(1, events.Numerics(step=1, loss_scale=1.0, modules=rows))])
    error = _ask(client, run_id, against=other)["prediction"]
    assert (error["pairs"], error["mean_error"], error["largest_error"]) == (2, 0.125, 0.25)


@pytest.mark.parametrize(
    ("query", "status", "part"),
    [
        ({"scale": 3}, 422, "must be a power of two"),
        ({"scale": "NaN"}, 422, "scale"),
        ({"scale": 2, "kind": "weights"}, 422, "moves gradients, not weights"),
        ({"format": "fp4"}, 422, "format"),
        ({"kind": "weights"}, 404, "recorded no exponents of weights"),
        ({"step": 2}, 404, "at step 2"),
        ({"against": 999}, 404, "run 999"),
    ],
)
def test_questions_that_have_no_answer(
    client: TestClient, run_id: int, query: dict[str, object], status: int, part: str
) -> None:
    answer = client.get(f"/api/v1/runs/{run_id}/whatif", params=query)  # type: ignore[arg-type]  # words and numbers
    assert answer.status_code == status
    assert part in answer.text
