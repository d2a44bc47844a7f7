"""Hosts in a submission, and what REST and pages tell of runs that go over several."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import select
from team import Team, one_line

from amp_core.config import RunConfig
from server.db.tables import Run, Worker
from server.queue.claim import claim
from server.queue.seats import end_seat

URL = "/api/v1/experiments"
TWO = {"workload": "digits-cnn", "hosts": 2, "seeds": 1, "recipes": ["fp32", "bf16"], "control": True}


def runs_of(team: Team, experiment_id: int) -> list[Run]:
    with team.database.read() as session:
        return list(session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)))


def add_worker(team: Team, name: str) -> int:
    now = datetime.now(UTC)
    with team.database.write() as session:
        worker = Worker(name=name, host=f"machine-{name}", pid=1, version="0", slots=1, state="online",
                        devices=[{"device": "cpu", "kind": "cpu", "name": "CPU"}],
                        started_at=now, heartbeat_at=now)  # fmt: skip
        session.add(worker)
        session.flush()
        return worker.id


def test_every_training_run_takes_the_hosts_also_the_baseline_s(team: Team) -> None:
    made = team.client("submitter").post(URL, json={**TWO, "ranks": 3, "strategy": "fsdp"}).json()
    runs = runs_of(team, made["id"])
    assert [(run.role, run.num_hosts, run.num_devices) for run in runs] == [
        ("baseline", 2, 1), ("candidate", 2, 1), ("control", 2, 1)
    ], "ranks on a CPU share it, and a benchmark takes one rank: none is planned"  # fmt: skip
    for run in runs:
        known = {name: value for name, value in run.config.items() if name in RunConfig.__struct_fields__}
        config = msgspec.convert({"run_id": run.id, "attempt": 1, "recipe": run.recipe, **known}, RunConfig)
        assert (config.ranks, config.distribution.strategy, config.distribution.nnodes) == (3, "fsdp", 2)


def test_one_host_is_the_default_and_leaves_no_trace(team: Team) -> None:
    made = team.client("submitter").post(URL, json={"workload": "digits-cnn", "seeds": 1}).json()
    for run in runs_of(team, made["id"]):
        assert run.num_hosts == 1
        assert "distribution" not in run.config


def _faults(team: Team, body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    response = team.client("submitter").post(URL, json=body)
    assert response.status_code == 422, response.text
    return {fault["field"]: fault for fault in response.json()["errors"]}


def test_what_hosts_cannot_do_is_told_at_submission(team: Team) -> None:
    assert team.client("submitter").post(URL, json={**TWO, "hosts": 0}).status_code == 422
    shards = {**TWO, "strategy": "fsdp", "recipes": ["fp32", {"precision": "bf16-mixed", "ema_decay": 0.9}]}
    assert "ema_decay" in _faults(team, shards)["strategy"]["rule"]
    assert team.client("submitter").post(URL, json={**TWO, "strategy": "fsdp"}).status_code == 201


def test_too_few_hosts_are_the_reason_why_it_waits(team: Team) -> None:
    add_worker(team, "one")
    client = team.client("submitter")
    made = client.post(URL, json=TWO).json()
    run_id = made["runs"][0]["id"]
    run = client.get(f"/api/v1/runs/{run_id}").json()
    assert run["queue_note"] == "needs 2 hosts with a free device (cpu) each; 1 connected"
    assert (run["state"], run["num_hosts"], run["seats"]) == ("queued", 2, [])
    assert "needs 2 hosts with a free device (cpu) each; 1 connected" in client.get(f"/runs/{run_id}").text


def test_seats_are_shown_on_the_run_and_on_both_workers(team: Team) -> None:
    first, second = add_worker(team, "one"), add_worker(team, "two")
    client = team.client("submitter")
    run_id = client.post(URL, json=TWO).json()["runs"][0]["id"]
    with team.database.write() as session:
        assert claim(session, first, ["cpu"], 60, endpoint=lambda: "10.0.0.1:29500") is not None
    waiting = client.get(f"/api/v1/runs/{run_id}").json()["seats"]
    assert [(seat["worker"], seat["state"]) for seat in waiting] == [("one", "taken"), ("two", "reserved")]
    with team.database.write() as session:
        assert claim(session, second, ["cpu"], 60) is not None
    workers = {worker["name"]: worker["runs"] for worker in client.get("/api/v1/workers").json()["items"]}
    assert [(run["id"], run["node"], run["num_hosts"]) for run in workers["one"]] == [(run_id, 0, 2)]
    assert [(run["id"], run["node"], run["num_hosts"]) for run in workers["two"]] == [(run_id, 1, 2)]
    assert "host 2 of 2" in one_line(client.get("/workers").text)
    for name in ("one", "two"):
        found = client.get("/api/v1/runs", params={"q": f"worker:{name}"}).json()["items"]
        assert [run["id"] for run in found] == [run_id]
    with team.database.write() as session:
        reason = {"kind": "exception", "message": "ValueError: no"}
        end_seat(session, run_id, 1, 1, "failed", reason, 1, "its last words", datetime.now(UTC) + timedelta(seconds=1))
    page = client.get(f"/runs/{run_id}").text
    assert all(text in page for text in ("10.0.0.1:29500", "machine-two", "ValueError: no", "its last words"))
    assert 'ampboard_seats{state="taken"} 1' in client.get("/metrics").text


def test_the_form_asks_for_hosts(team: Team) -> None:
    client = team.client("submitter")
    assert 'name="hosts"' in client.get("/experiments/new").text
    filled = client.get(f"/experiments/new?from={client.post(URL, json=TWO).json()['id']}").text
    assert 'name="hosts" value="2"' in filled
