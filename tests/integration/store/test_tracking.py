"""A script that tracks its own run: by the SDK and by plain JSON, against a real server."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from live_server import LiveServer
from sqlalchemy import select, update

from amp_core import tracking
from amp_core.tracking import run as tracked_run
from amp_core.tracking.columns import columns_of
from server.db.engine import Database
from server.db.tables import Run
from server.queue.reap import reap


@pytest.fixture
def server(database: Database, tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(database, tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_run, "SEND_S", 0.05)
    monkeypatch.setattr(tracked_run, "RETRY_S", 0.05)


def client(server: LiveServer, role: str = "submitter") -> httpx.Client:
    headers = {"Authorization": f"Bearer {server.team.tokens[role]}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=20, trust_env=False)


def begin(server: LiveServer, **fields: Any) -> tracking.TrackedRun:
    return tracking.init(url=server.url, token=server.team.tokens["submitter"], **fields)


def test_what_a_script_logs_is_what_is_read(server: LiveServer) -> None:
    with begin(server, name="mine", recipe="bf16", config={"lr": 0.5}, tags=["night"]) as run:
        for step in range(1, 1001):
            run.log({"loss": 1 / step, "acc": math.nan if step == 7 else step}, step=step)
            if step % 10 == 0:
                run.log({"eval/loss": 2.0}, step=step)
    with client(server) as http:
        told = http.get(f"/api/v1/runs/{run.id}").json()
        loss = http.get(f"/api/v1/runs/{run.id}/series/loss?max_points=1000").json()
        experiment = http.get(f"/api/v1/experiments/{told['experiment_id']}").json()
        found = http.get("/api/v1/runs?q=lr=0.5 tag:night recipe:bf16-mixed loss<0.01").json()["items"]
        assert http.get(f"/api/v1/experiments/{told['experiment_id']}/comparison").status_code == 200
        assert http.post(f"/api/v1/experiments/{told['experiment_id']}/retry").status_code == 409
    assert (told["state"], told["step"], told["recipe_name"], told["result"]["metrics"]["eval/loss"]) == (
        "completed", 1000, "bf16-mixed", 2.0,
    )  # fmt: skip
    assert loss["values"] == [1 / step for step in range(1, 1001)]
    assert told["metrics"]["acc"]["num_nan"] == 1
    assert (experiment["state"], experiment["name"]) == ("ended", "mine")
    assert [item["id"] for item in found] == [run.id]


def test_runs_of_one_experiment_are_shown_together(server: LiveServer) -> None:
    ids = []
    for seed, recipe in ((0, "fp32"), (1, "bf16")):
        run = begin(server, experiment="compare", recipe=recipe, seed=seed)
        run.log({"loss": 1.0})
        run.finish()
        ids.append(run.id)
    with client(server) as http:
        (experiment,) = http.get("/api/v1/experiments?q=compare").json()["items"]
        runs = http.get(f"/api/v1/experiments/{experiment['id']}").json()["runs"]
    assert [item["id"] for item in runs] == ids
    assert [item["name"] for item in experiment["recipes"]] == ["32-true", "bf16-mixed"]
    assert experiment["seeds"] == [0, 1]


def test_an_exception_ends_the_run_as_failed(server: LiveServer) -> None:
    with pytest.raises(ZeroDivisionError), begin(server) as run:
        run.log({"loss": 1 / 0})
    with client(server) as http:
        told = http.get(f"/api/v1/runs/{run.id}").json()
    assert (told["state"], told["reason"]["message"]) == ("failed", "ZeroDivisionError: division by zero")


def test_a_server_that_is_away_costs_nothing(database: Database, tmp_path: Path) -> None:
    first = LiveServer(database, tmp_path)
    first.start()
    run = begin(first)
    run.log({"loss": 1.0}, step=1)
    port = int(first.url.rpartition(":")[2])
    time.sleep(0.3)
    first.stop()
    for step in range(2, 500):
        run.log({"loss": 1.0}, step=step)
    time.sleep(0.3)
    again = LiveServer(Database(database.url), tmp_path, port=port, team=first.team)
    again.start()
    run.finish()
    with client(again) as http:
        assert http.get(f"/api/v1/runs/{run.id}").json()["metrics"]["loss"]["num_points"] == 499
    again.stop()


def test_plain_json_replays_and_refusals(server: LiveServer) -> None:
    with client(server) as http, client(server, "admin") as admin, client(server, "viewer") as viewer:
        run = http.post("/api/v1/runs", json={"name": "curl"}).json()["id"]
        url = f"/api/v1/runs/{run}/segments"
        body = {"sequence": 1, "series": {"loss": {"steps": [1, 2], "values": [0.5, "NaN"]}}}
        assert http.post(url, json=body).json() == {
            "stored": 1, "sequence": 1, "state": "running", "cancel_requested": False,
        }  # fmt: skip
        assert http.post(url, json=body).json()["stored"] == 0
        assert viewer.post(url, json=body).status_code == 403
        for wrong in ({"sequence": 0}, {"sequence": 1, "series": {"a": {"steps": [1], "values": []}}}, {"nonsense": 1}):
            assert http.post(url, json=wrong).status_code == 422
        assert http.post(url, content=b"\xff\xff\xff\x7f").status_code == 422
        assert http.post("/api/v1/runs", json={"recipe": "fp7"}).status_code == 422
        http.post(f"/api/v1/runs/{run}/cancel")
        assert http.post(url, content=b"").json()["cancel_requested"] is True
        last = {"sequence": 2, "state": "completed"}
        assert http.post(url, json=last).json()["state"] == "completed"
        assert http.post(url, json=last).json()["stored"] == 0
        assert http.post(url, json={"sequence": 3}).status_code == 409
        other = admin.post("/api/v1/runs", json={}).json()["id"]
        assert http.post(f"/api/v1/runs/{other}/segments", json=body).status_code == 403


def test_a_silent_run_counts_as_lost(server: LiveServer) -> None:
    with client(server) as http:
        run = http.post("/api/v1/runs", json={}).json()["id"]
    database = server.team.database
    with database.write() as session:
        assert reap(session) == []
        session.execute(update(Run).values(lease_expires_at=datetime.now(UTC) - timedelta(seconds=1)))
        assert [item.state for item in reap(session)] == ["failed"]
    with database.read() as session:
        reason = session.scalar(select(Run.reason).where(Run.id == run))
        assert reason is not None
        assert reason["kind"] == "lost"


def test_a_script_that_just_ends_has_finished(server: LiveServer) -> None:
    script = "import sys; from amp_core import tracking; tracking.init('s'); tracking.log({'a': 1})"
    script += "; assert 'torch' not in sys.modules"
    environment = {**os.environ, "AMPBOARD_URL": server.url, "AMPBOARD_TOKEN": server.team.tokens["submitter"]}
    for code, state in ((script, "completed"), (f"{script}; raise SystemError('x')", "failed")):
        subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, capture_output=True)
        with client(server) as http:
            told = http.get("/api/v1/runs?limit=1").json()["items"][0]
        assert (told["state"], told["metrics"]["a"]["num_points"]) == (state, 1)


def test_columns_keep_the_order_of_calls() -> None:
    calls = [
        (1, 0.1, ("a", "b"), (1.0, 2.0)), (2, 0.2, ("b", "a"), (3.0, 4.0)),
        (3, 0.3, ("a",), (5.0,)), (3, 0.4, ("a", "b"), (6.0, 7.0)), (4, 0.5, ("c", "d"), (8.0, 9.0)),
    ]  # fmt: skip
    found = {
        column.name: tuple(np.frombuffer(part, kind).tolist() for part, kind in (
            (column.steps, "<i8"), (column.values, "<f8"), (column.times, "<f8"),
        ))
        for column in columns_of(calls)
    }  # fmt: skip
    assert found == {
        "a": ([1, 2, 3, 3], [1.0, 4.0, 5.0, 6.0], [0.1, 0.2, 0.3, 0.4]),
        "b": ([1, 2, 3], [2.0, 3.0, 7.0], [0.1, 0.2, 0.4]),
        "c": ([4], [8.0], [0.5]),
        "d": ([4], [9.0], [0.5]),
    }
    assert columns_of([]) == []


def test_what_cannot_be_logged_is_told_at_once_and_loses_nothing(server: LiveServer) -> None:
    with begin(server) as run:
        run.log({"loss": 1.0, "ints": 2, "numpy": np.float32(0.5)}, step=1)
        for metrics, step, error in (
            ({"loss": 1.0}, 1.5, TypeError), ({"loss": 1.0}, 2**63, ValueError), ({"loss": "high"}, 2, ValueError),
            ({"": 1.0}, 2, ValueError), ({"x" * 201: 1.0}, 2, ValueError), ({3: 1.0}, 2, ValueError),
            ({"a\ud800": 1.0}, 2, ValueError), ({"loss": None}, 2, TypeError),
        ):  # fmt: skip
            with pytest.raises(error):
                run.log(metrics, step=step)  # type: ignore[arg-type] - what a caller does wrong
        run.log({"loss": 3.0}, step=np.int64(2))  # type: ignore[arg-type] - works, as any index does
    with client(server) as http:
        told = http.get(f"/api/v1/runs/{run.id}").json()
    assert {name: (series["num_points"], series["last"]) for name, series in told["metrics"].items()} == {
        "loss": (2, 3.0), "ints": (1, 2.0), "numpy": (1, 0.5),
    }  # fmt: skip


def test_a_long_run_is_sent_in_batches_that_fold_at_once(server: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracked_run, "MAX_BATCH_POINTS", 3000)
    with begin(server) as run:
        for step in range(10_000):
            run.log({"a": float(step), "b": -float(step)} if step % 3 else {"b": -float(step)}, step=step)
    with client(server) as http:
        read = {name: http.get(f"/api/v1/runs/{run.id}/series/{name}?max_points=20000").json() for name in ("a", "b")}
    assert read["a"]["values"] == [float(step) for step in range(10_000) if step % 3]
    assert (read["b"]["steps"], read["b"]["num_stored"]) == (list(range(10_000)), 10_000)
