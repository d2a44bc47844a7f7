"""The panels of the run page: types with their shares, casts, and the heat map of gradient exponents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from histories import add_experiment, add_run, frame, started
from sqlalchemy import update
from team import Team

from amp_core import events
from amp_core.telemetry.exponents import FIRST_ROW, MIN_EXPONENT, Histogram, empty, pack
from server.db.engine import Database
from server.db.tables import Experiment
from server.metrics.write import store_frames
from server.pages import what_ran

PLAN = {"recipes": [{"name": "16-mixed", "precision": "16-mixed"}], "primary": {"metric": "loss", "unit": ""}}


def ran(module: str, phase: str, op: str, dtype: str, calls: int, flops: int, seconds: float) -> events.Operations:
    return events.Operations(
        module=module, phase=phase, op=op, dtype=dtype, calls=calls, flops=flops, seconds=seconds
    )  # fmt: skip


def cast(module: str, calls: int, num_bytes: int) -> events.Casts:
    return events.Casts(
        module=module, phase="forward", source="float32", target="float16", calls=calls, num_bytes=num_bytes,
        seconds=0.001,
    )  # fmt: skip


def proof(took_effect: bool = True, **given: Any) -> events.EffectivePrecision:
    fields: dict[str, Any] = {
        "step": 2,
        "asked": "float16",
        "took_effect": took_effect,
        "sentence": "float16 was asked for, and 75 % ran in it.",
        "flops": {"float16": 300, "float32": 100},
        "kept_flops": {},
        "seconds": {"float16": 0.006, "float32": 0.002, "casts": 0.002},
        "operations": [
            ran("fc", "forward", "addmm", "float16", 1, 100, 0.003),
            ran("fc", "backward", "mm", "float16", 2, 200, 0.003),
            ran("", "forward", "mul", "float32", 1, 0, 0.002),
        ],
        "casts": [cast("fc", 2, 2048), cast("", 1, 1024)],
        "flags": {"mkldnn.matmul": "ieee"},
        "fused": {"optimizer": True},
    }  # fmt: skip
    return events.EffectivePrecision(**{**fields, **given})


def histogram(counts: dict[int, int]) -> Histogram:
    made = empty()
    for exponent, count in counts.items():
        made.table[FIRST_ROW + exponent - MIN_EXPONENT, 2] = count
    return made


def gradients(sequence: int, step: int, counts: dict[int, int], scale: float = 1024.0) -> events.Frame:
    packed = pack([histogram(counts)])
    return frame(
        sequence,
        events.ExponentHistograms(step=step, kind="gradients", scale=scale, modules=["fc"], counts=packed),
    )


@pytest.fixture
def run_id(database: Database) -> int:
    experiment = add_experiment(database)
    with database.write() as session:
        session.execute(update(Experiment).where(Experiment.id == experiment).values(plan=PLAN))
    return add_run(database, experiment, recipe_name="16-mixed", recipe=PLAN["recipes"][0])  # type: ignore[index]


def store(database: Database, run_id: int, *frames: events.Frame) -> None:
    with database.write() as session:
        store_frames(session, run_id, 1, frames)


def facts(run_id: int, **given: Any) -> dict[str, Any]:
    return {"id": run_id, "numerics": "native", "metrics": {}, "recipe": {"precision": "16-mixed"}, **given}


def test_nothing_recorded_nothing_shown(database: Database, run_id: int) -> None:
    with database.read() as session:
        assert what_ran.effective_precision(session, facts(run_id)) is None
        assert what_ran.gradient_exponents(session, facts(run_id)) is None


def test_shares_casts_and_modules(database: Database, run_id: int) -> None:
    store(database, run_id, started(1), frame(2, proof()))
    metrics = {"memory/weights_bytes": {"max": 4_000_000.0}, "memory/saved_for_backward_bytes": {"max": 2e6}}
    with database.read() as session:
        panel = what_ran.effective_precision(session, facts(run_id, metrics=metrics))
        emulated = what_ran.effective_precision(session, facts(run_id, metrics=metrics, numerics="emulated"))
    assert panel is not None
    assert emulated is not None
    bar = panel["bars"][0]
    assert bar["text"] == "fp16 75.0 %, FP32 25.0 %"
    assert [(part["x"], part["width"], part["slot"]) for part in bar["parts"]] == [(0, 75, "fp16"), (75, 25, "fp32")]
    assert panel["cast_share"] == 0.2
    assert [(row["types"], row["calls"]) for row in panel["casts"]] == [("FP32 → fp16", "3")]
    assert [(row["module"], row["forward"], row["backward"]) for row in panel["modules"]] == [
        ("fc", "fp16", "fp16"),
        ("outside of modules", "–", "–"),
    ]
    assert panel["memory"].startswith("weights ")
    assert "saved for backward" in panel["memory"]
    assert "saved for backward" not in emulated["memory"]


def test_the_heat_map_has_a_cell_for_each_exponent_and_the_window_follows_the_scale(
    database: Database, run_id: int
) -> None:
    store(database, run_id, gradients(1, 1, {-40: 1, -30: 63}, scale=1024.0), gradients(2, 25, {-32: 4}, scale=4096.0))
    with database.read() as session:
        heat = what_ran.gradient_exponents(session, facts(run_id))
    assert heat is not None
    assert (heat["format"], heat["width"], heat["height"]) == ("fp16", 2 * what_ran.cell_width(2), 11 * what_ran.CELL_H)
    cells = [cell for level in heat["levels"] for cell in re.findall(r"M(\d+) (\d+)h", level["path"])]
    assert sorted(cells) == sorted([("0", "50"), ("0", "0"), (str(what_ran.cell_width(2)), "10")])
    assert [level["opacity"] for level in heat["levels"]] == [0.625, 1.0], "1 in 64 is three powers of four down"
    (line,) = [line for line in heat["window"] if line["path"]]
    top = -30 + 1  # the upper edge of the picture, as an exponent
    expected = [what_ran.CELL_H * (top - (-25 - k)) for k in (10, 12)]
    assert line["label"] == "zero"
    assert [int(y) for y in re.findall(r" (\d+)H", line["path"])] == expected
    assert heat["facts"][0] == "fp16 at loss scale 4,096: none to zero, none beyond its range"
    assert heat["facts"][1].startswith("fp16 at loss scale 1: 100.0 % to zero")


def test_long_runs_are_thinned_and_say_so(database: Database, run_id: int) -> None:
    store(database, run_id, *[gradients(number, number, {-3: 5}) for number in range(1, 101)])
    with database.read() as session:
        heat = what_ran.gradient_exponents(session, facts(run_id))
    assert heat is not None
    assert heat["note"] == f"{what_ran.MAX_COLUMNS} of 100 samples"
    assert heat["steps"] == [1, 100]


def test_the_page_shows_both_and_flags_what_took_no_effect(database: Database, run_id: int, tmp_path: Path) -> None:
    client: TestClient = Team(database, tmp_path).client("viewer")
    bare = client.get(f"/runs/{run_id}", headers={"Accept": "text/html"})
    assert bare.status_code == 200
    assert "What really ran" not in bare.text
    sentence = "float16 was asked for, but <b>97 %</b> ran in float32."
    store(
        database, run_id, started(1), frame(2, proof(took_effect=False, sentence=sentence)), gradients(3, 1, {-30: 2})
    )
    page = client.get(f"/runs/{run_id}", headers={"Accept": "text/html"}).text
    assert "What really ran" in page
    assert '<span class="badge caution">no effect</span>' in page
    assert "&lt;b&gt;97 %&lt;/b&gt;" in page
    assert "Exponents of gradients" in page
    assert '<span class="badge caution">effective precision</span>' in page
    assert "exponent histograms" not in page, "samples are no news"
