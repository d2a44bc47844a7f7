"""Checkpoints that runs keep: asked for, listed, begun at, held while somebody needs them, and dropped."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from forking import BODY, KEPT, URL, configs_of, faults_of, fork_of, name_at, submit, work
from sqlalchemy import select
from team import Team

from amp_core.events import Checkpointed, Frame
from server.db.tables import Experiment, Run
from server.metrics.write import store_frames
from server.queue.needs import parse_needs
from server.runs.delete import delete_expired


def _refused_fields(team: Team, **body: Any) -> list[str]:
    response = team.client("submitter").post(URL, json={**BODY, **body})
    assert response.status_code == 422
    return [fault["field"] for fault in response.json()["errors"]]


def test_the_baselines_runs_keep_what_was_asked(team: Team) -> None:
    made = submit(team, **{**KEPT, "seeds": 2, "control": True})
    assert made["keep_steps"] == [40, 100]
    assert made["fork"] is None
    for run, config in configs_of(team, made["id"]):
        assert config.keep_steps == ((40, 100) if run.role == "baseline" else ())
    assert submit(team, steps=50, keep_checkpoints="last")["keep_steps"] == [50]
    assert submit(team)["keep_steps"] == []


@pytest.mark.parametrize("given", [[101], [], [0], "first", [1] * 21])
def test_what_cannot_be_kept_is_refused(team: Team, given: Any) -> None:
    faults = _refused_fields(team, steps=100, keep_checkpoints=given)
    assert all(field.startswith("keep_checkpoints") for field in faults)
    if given == [101]:
        assert (
            "no checkpoint after step 101"
            in faults_of(team, steps=100, keep_checkpoints=given)["keep_checkpoints"]["rule"]
        )


def test_kept_checkpoints_are_listed_with_their_size(team: Team, origin: int) -> None:
    answer = team.client("viewer").get(f"/api/v1/runs/{origin}/checkpoints").json()
    assert [(one["step"], one["name"], one["worker"], one["is_shared"]) for one in answer["items"]] == [
        (40, name_at(40), "worker-1", False),
        (100, name_at(100), "worker-1", False),
    ]
    assert (answer["num_bytes"], answer["needed_by"]) == (2000, [])
    assert team.client("viewer").get("/api/v1/runs/999/checkpoints").status_code == 404


def _analysed(team: Team, run_id: int, **body: Any) -> Any:
    return team.client("submitter").post(f"/api/v1/runs/{run_id}/analyses", json={"kind": "sensitivity", **body})


def test_an_analysis_begins_at_a_kept_checkpoint(team: Team, origin: int) -> None:
    rival = next(run["id"] for run in team.client("viewer").get(f"{URL}/1").json()["runs"] if run["id"] != origin)
    plain = _analysed(team, rival).json()
    assert "fork" not in plain["config"]
    assert "keep_steps" not in _analysed(team, origin, recipe="bf16").json()["config"]
    made = _analysed(team, rival, from_checkpoint={"run": origin, "step": 40})
    assert made.status_code == 201, made.text
    assert made.json()["config"]["fork"] == {
        "run": origin, "step": 40, "name": name_at(40), "seed": 0, "steps": 100,
    }  # fmt: skip
    with team.database.read() as session:
        assert parse_needs(session.get_one(Run, made.json()["id"]).needs).worker == "worker-1"
    listed = team.client("viewer").get(f"/api/v1/runs/{origin}/checkpoints").json()
    assert listed["needed_by"] == [1], "an analysis needs it, too"
    assert team.client("submitter").delete(f"/api/v1/runs/{origin}/checkpoints").status_code == 409


def test_an_analysis_is_not_retried_without_its_checkpoint(team: Team, origin: int) -> None:
    client = team.client("submitter")
    rival = next(run["id"] for run in client.get(f"{URL}/1").json()["runs"] if run["id"] != origin)
    made = _analysed(team, rival, from_checkpoint={"run": origin, "step": 40}).json()["id"]
    assert client.post(f"{URL}/1/cancel").status_code == 200
    assert client.post(f"/api/v1/runs/{made}/retry").status_code == 200
    assert client.post(f"/api/v1/runs/{made}/cancel").status_code == 200
    assert client.delete(f"/api/v1/runs/{origin}/checkpoints").status_code == 204
    for path in (f"/api/v1/runs/{made}/retry", f"{URL}/1/retry"):
        refused = client.post(path)
        assert refused.status_code == 409, path
        assert f"run {made} begins after step 40 of run {origin}" in refused.json()["detail"]
    (left,) = client.post("/api/v1/runs/actions", json={"action": "retry", "ids": [made]}).json()["refused"]
    assert "is not kept any more" in left["reason"]
    assert client.post(f"/api/v1/runs/{rival}/retry").status_code == 200, "it needs none"


def test_analyses_of_a_fork_begin_where_it_began(team: Team, origin: int) -> None:
    made = submit(team, **fork_of(origin), analyses=[{"kind": "stress", "recipe": "bf16-mixed"}])
    planned = next(run for run in made["runs"] if run["role"] == "analysis")
    asked = _analysed(team, made["runs"][1]["id"]).json()["id"]
    with team.database.read() as session:
        for run_id in (planned["id"], asked):
            run = session.get_one(Run, run_id)
            assert run.config["fork"]["name"] == name_at(40)
            assert parse_needs(run.needs).worker == "worker-1"


@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        ({"from_checkpoint": {"step": 41}}, "from_checkpoint.step", "none after 41"),
        ({"from_checkpoint": {"run": 999}}, "from_checkpoint.run", "no such run"),
        ({"kind": "batch-size"}, "from_checkpoint", "trains no start"),
    ],
)
def test_an_analysis_that_cannot_begin_there_is_refused(
    team: Team, origin: int, body: dict[str, Any], field: str, told: str
) -> None:
    asked = {**body, "from_checkpoint": {"run": origin, **body.get("from_checkpoint", {})}}
    answer = _analysed(team, origin, recipe="bf16", **asked)
    assert answer.status_code == 422, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["field"] == field
    assert told in fault["rule"]


def test_the_space_they_take_is_told(team: Team, origin: int) -> None:
    browser = team.browser("viewer")
    assert "keeps <b>2</b> checkpoints, 2.0 kB" in browser.get("/experiments/1").text
    figures = team.client("viewer").get("/metrics").text
    assert "ampboard_kept_checkpoints 2" in figures
    assert "ampboard_kept_checkpoint_bytes 2000" in figures
    assert "1.0 kB, kept" in browser.get(f"/runs/{origin}").text


def test_what_a_fork_needs_stays_until_it_has_ended(team: Team, origin: int) -> None:
    client = team.client("submitter")
    with team.database.write() as session:
        for run in session.scalars(select(Run).where(Run.state == "queued")):
            run.state = "cancelled"
    made = submit(team, **fork_of(origin))
    listed = client.get(f"/api/v1/runs/{origin}/checkpoints").json()
    assert listed["needed_by"] == [made["id"]]
    for path in (f"/api/v1/runs/{origin}/checkpoints", f"/api/v1/runs/{origin}", f"{URL}/1"):
        refused = client.delete(path)
        assert refused.status_code == 409, path
        assert f"experiment {made['id']} begins at one of them" in refused.json()["detail"]
    with team.database.write() as session:
        first = session.get_one(Experiment, 1)
        first.state, first.ended_at = "ended", datetime(2020, 1, 1, tzinfo=UTC)
    assert delete_expired(team.database, 30) == [], "retention waits, too"
    assert client.post(f"{URL}/{made['id']}/cancel").status_code == 200
    assert client.delete(f"/api/v1/runs/{origin}/checkpoints").status_code == 204
    assert client.get(f"/api/v1/runs/{origin}/checkpoints").json()["items"] == []
    assert client.delete(f"/api/v1/runs/{origin}/checkpoints").status_code == 409
    for path in (f"{URL}/{made['id']}/retry", f"/api/v1/runs/{made['runs'][0]['id']}/retry"):
        refused = client.post(path)
        assert refused.status_code == 409
        assert "is not kept any more" in refused.json()["detail"]
    assert delete_expired(team.database, 30) == [1]


def test_only_owner_and_admin_drop(team: Team, origin: int) -> None:
    assert team.client("viewer").delete(f"/api/v1/runs/{origin}/checkpoints").status_code == 403
    with team.database.write() as session:
        for experiment in session.scalars(select(Experiment)):
            experiment.owner_id = team.ids["viewer"]
    assert team.client("submitter").delete(f"/api/v1/runs/{origin}/checkpoints").status_code == 403
    assert team.client("admin").delete(f"/api/v1/runs/{origin}/checkpoints").status_code == 204


def test_a_later_attempt_replaces_the_checkpoint_of_its_step(team: Team) -> None:
    team.add_worker()
    run_id = submit(team, **KEPT)["runs"][0]["id"]
    work(team, run_id, kept=(40,), outcome=None)
    newer = name_at(40).replace("ab", "cd")
    frame = Frame(sequence=7, at=1e9, event=Checkpointed(step=40, path=newer, num_bytes=3, seconds=0.1, kept=True))
    with team.database.write() as session:
        store_frames(session, run_id, 1, [frame])
    (one,) = team.client("viewer").get(f"/api/v1/runs/{run_id}/checkpoints").json()["items"]
    assert (one["name"], one["num_bytes"]) == (newer, 3)


def test_a_later_attempt_leaves_the_checkpoint_that_an_open_fork_needs(team: Team) -> None:
    team.add_worker()
    run_id = submit(team, **KEPT)["runs"][0]["id"]
    work(team, run_id, kept=(40,), outcome=None)
    fork_id = submit(team, **fork_of(run_id))["id"]

    def write_anew(sequence: int) -> str:
        newer = name_at(40).replace("ab", "cd")
        frame = Frame(sequence=sequence, at=1e9,
                      event=Checkpointed(step=40, path=newer, num_bytes=3, seconds=0.1, kept=True))  # fmt: skip
        with team.database.write() as session:
            store_frames(session, run_id, 1, [frame])
        (one,) = team.client("viewer").get(f"/api/v1/runs/{run_id}/checkpoints").json()["items"]
        return str(one["name"])

    assert write_anew(7) == name_at(40)
    assert team.client("submitter").post(f"{URL}/{fork_id}/cancel").status_code == 200
    assert write_anew(8) != name_at(40)
