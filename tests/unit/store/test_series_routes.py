"""Series over REST: JSON and raw arrays say the same, several runs at once, and ended runs need not be sent again."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from histories import add_experiment, add_run, change_run, segment
from team import Team

from server.db.engine import Database
from server.metrics.fold import fold
from server.metrics.representation import BINARY, MAGIC
from server.metrics.write import store_frames

VALUES = [1.0, math.nan, -math.inf, 4.0, math.inf, math.nan] * 100


@pytest.fixture
def client(database: Database, tmp_path: Path) -> TestClient:
    return Team(database, tmp_path).client("viewer")


def ended_run(database: Database, experiment_id: int | None = None, *, offset: float = 0.0) -> int:
    run_id = add_run(database, experiment_id)
    with database.write() as session:
        frames = [segment(1, {"a": (range(600), VALUES), "b": (range(5), [offset] * 5)})]
        store_frames(session, run_id, 1, frames)
        fold(session, run_id, 1)
    change_run(database, run_id, state="completed", ended_at=datetime(2026, 1, 2, tzinfo=UTC))
    return run_id


def parse(content: bytes) -> list[dict[str, Any]]:
    assert content[:8] == MAGIC
    size = int.from_bytes(content[8:16], "little")
    place, found = 16 + size, []
    assert place % 8 == 0
    for item in json.loads(content[16:place])["series"]:
        for key, kind in (("steps", "<i8"), ("values", "<f8"), ("times", "<f8")):
            item[key] = np.frombuffer(content, kind, item["num_points"], place)
            place += 8 * item["num_points"]
        found.append(item)
    assert place == len(content)
    return found


@pytest.mark.parametrize("max_points", [16, 1000])
def test_json_and_raw_arrays_say_the_same(client: TestClient, database: Database, max_points: int) -> None:
    run_id = ended_run(database)
    url = f"/api/v1/runs/{run_id}/series/a?max_points={max_points}"
    plain, raw = client.get(url), client.get(url, headers={"Accept": BINARY})
    assert (plain.headers["content-type"], raw.headers["content-type"]) == ("application/json", BINARY)
    (item,) = parse(raw.content)
    told = plain.json()
    for key in ("steps", "values", "times"):
        assert repr([float(value) for value in told[key]]) == repr(item[key].astype(float).tolist())
    assert {key: item[key] for key in ("kind", "num_stored", "bin_width", "non_finite")} == {
        key: told[key] for key in ("kind", "num_stored", "bin_width", "non_finite")
    }
    if told["kind"] == "binned":
        assert (sum(told["non_finite"]["nan"]), sum(told["non_finite"]["pos_inf"])) == (200, 100)
    else:
        assert told["non_finite"] is None


def test_several_series_of_several_runs_in_one_request(client: TestClient, database: Database) -> None:
    runs = [ended_run(database, offset=float(n)) for n in range(3)]
    url = f"/api/v1/series?runs={','.join(map(str, runs))},999&names=a,b,none&from=1&to=3&max_points=16"
    told = client.get(url).json()["series"]
    assert [(item["run_id"], item["name"]) for item in told] == [(run, name) for run in runs for name in ("a", "b")]
    assert [item["values"] for item in told if item["name"] == "b"] == [[float(n)] * 3 for n in range(3)]
    assert [item["run_id"] for item in parse(client.get(url, headers={"Accept": BINARY}).content)] == [
        item["run_id"] for item in told
    ]
    problem = client.get("/api/v1/series?runs=1,x&names=a")
    assert problem.status_code == 422
    assert "whole numbers" in problem.json()["errors"][0]["rule"]


def test_an_ended_run_is_sent_once(client: TestClient, database: Database) -> None:
    experiment_id = add_experiment(database)
    run_id = ended_run(database, experiment_id)
    for url in (
        f"/api/v1/runs/{run_id}/series/a",
        f"/api/v1/series?runs={run_id}&names=a",
        f"/api/v1/experiments/{experiment_id}/series?names=a",
    ):
        first = client.get(url)
        tag = first.headers["etag"]
        again = client.get(url, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert client.get(url, headers={"If-None-Match": tag, "Accept": BINARY}).status_code == 200
        assert client.get(url + "&max_points=16" if "?" in url else url + "?max_points=16").headers["etag"] != tag
        change_run(database, run_id, attempt=2)
        assert client.get(url, headers={"If-None-Match": tag}).status_code == 200
        change_run(database, run_id, attempt=1)


def test_a_running_run_has_no_tag(client: TestClient, database: Database) -> None:
    run_id = ended_run(database)
    change_run(database, run_id, state="running", ended_at=None)
    answer = client.get(f"/api/v1/runs/{run_id}/series/a", headers={"If-None-Match": "*"})
    assert answer.status_code == 200
    assert "etag" not in answer.headers
