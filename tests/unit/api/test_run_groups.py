"""Groups of runs against plain arithmetic, and lists sorted by every column, page by page."""

from __future__ import annotations

import math
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from team import Team

from server.db.engine import Database
from server.db.tables import Run, Series
from server.runs.sorting import SORTS

VALUES = {"32-true": [0.9, 0.91, 0.92], "bf16-mixed": [0.89, 0.93, None], "16-mixed": [0.5, math.nan, 1e308]}


@pytest.fixture(scope="module")
def team(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """One team for the whole module: nothing here changes anything."""
    folder = tmp_path_factory.mktemp("groups")
    shutil.copyfile(sqlite_template, folder / "ampboard.sqlite3")
    database = Database(f"sqlite:///{folder / 'ampboard.sqlite3'}")
    made = Team(database, folder)
    made.add_workload()
    made.add_worker()
    body = {"workload": "digits-cnn", "seeds": 3, "control": False, "measure_gain": False, "tags": ["a", "b"]}
    for lr in (0.1, 0.2):
        made.client("admin").post("/api/v1/experiments", json={**body, "params": {"lr": lr}}).raise_for_status()
    runs = made.client("viewer").get("/api/v1/runs", params={"experiment_id": 1}).json()["items"]
    with database.write() as session:
        for run in runs:
            value = VALUES[run["recipe_name"]][run["seed"]]
            session.get_one(Run, run["id"]).state = "completed"
            if value is not None:
                session.add(_series(run["id"], value))
    yield made
    database.dispose()


def _series(run_id: int, value: float) -> Series:
    finite = value if math.isfinite(value) else None
    return Series(
        run_id=run_id, attempt=1, name="eval/accuracy", num_points=1, first_step=7, last_step=7, finite_last=finite,
        last_value=struct.pack("<d", value), finite_min=finite, finite_max=finite, num_nan=int(math.isnan(value)),
        first_non_finite_step=None if finite is not None else 7,
    )  # fmt: skip


def groups(team: Team, **params: Any) -> dict[str, Any]:
    answer = team.client("viewer").get("/api/v1/runs/groups", params=params)
    assert answer.status_code == 200, answer.text
    return {item["key"]: item for item in answer.json()["items"]}


def test_means_ranges_and_differences_are_those_of_plain_arithmetic(team: Team) -> None:
    found = groups(team, by="recipe", metrics="primary,eval/accuracy,train/loss")
    fp32, bf16, fp16 = (found[name] for name in VALUES)
    spread = fp32["spreads"]["primary"][0]
    assert spread["metric"] == "eval/accuracy"
    assert spread == fp32["spreads"]["eval/accuracy"][0]
    assert (spread["mean"], spread["sd"]) == pytest.approx((fmean(VALUES["32-true"]), stdev(VALUES["32-true"])))  # type: ignore[type-var]
    assert (spread["num"], spread["min"], spread["max"], spread["delta"]) == (3, 0.9, 0.92, None)
    assert bf16["spreads"]["primary"][0]["delta"] == pytest.approx((0.89 - 0.9 + 0.93 - 0.91) / 2)
    assert bf16["spreads"]["primary"][0]["num_pairs"] == 2
    assert fp16["spreads"]["primary"][0]["mean"] == pytest.approx(5e307)
    assert (fp16["num_nan"], fp16["num_inf"], fp16["first_non_finite_step"]) == (1, 0, 7)
    assert fp32["spreads"]["train/loss"] == []
    assert {state: count for state, count in fp32["states"].items() if count} == {"queued": 3, "completed": 3}


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("precision", {"32-true", "bf16-mixed", "16-mixed"}), ("workload", {"digits-cnn"}), ("owner", {"admin"}),
        ("tag", {"a", "b"}), ("experiment", {"1", "2"}), ("state", {"completed", "queued"}), ("project", {"default"}),
        ("device", {"not started"}),
    ],
)  # fmt: skip
def test_every_way_to_group(team: Team, by: str, keys: set[str]) -> None:
    assert set(groups(team, by=by)) == keys
    assert set(groups(team, by=by, q="status:failed")) == set()
    assert sum(item["num_runs"] for item in groups(team, by=by).values()) == 18 * (2 if by == "tag" else 1)


@pytest.mark.parametrize("sort", [*SORTS, "eval/accuracy", "eval/accuracy.max", "params.lr", "params.norm", "nothing"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_every_sort_pages_through_every_run_once(team: Team, sort: str, sign: str) -> None:
    client, seen, cursor = team.client("viewer"), [], None
    while True:
        params = {"sort": sign + sort, "limit": 5} | ({"cursor": cursor} if cursor else {})
        answer = client.get("/api/v1/runs", params=params)
        assert answer.status_code == 200, answer.text
        seen += answer.json()["items"]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            break
    assert sorted(run["id"] for run in seen) == list(range(1, 19))
    if sort in ("seed", "step", "attempt"):
        values = [run[sort] for run in seen]
        assert values == sorted(values, reverse=bool(sign))
    if sort in ("primary", "eval/accuracy"):
        values = [run["metrics"].get("eval/accuracy", {}).get("last") for run in seen]
        finite = [value for value in values if isinstance(value, float)]
        assert values[: len(finite)] == sorted(finite, reverse=bool(sign))


def test_cursors_of_other_sorts_are_refused(team: Team) -> None:
    client = team.client("viewer")
    cursor = client.get("/api/v1/runs", params={"sort": "recipe", "limit": 2}).json()["next_cursor"]
    for sort in ("seed", "created", "eval/accuracy", "started"):
        assert client.get("/api/v1/runs", params={"sort": sort, "cursor": cursor}).status_code == 422, sort
