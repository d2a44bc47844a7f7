"""Forks in a submission, and checkpoints that are kept for them: what is accepted, told, refused, and held."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from sqlalchemy import select
from team import Team, one_line

from amp_core.config import RunConfig
from amp_core.events import Checkpointed, Frame, Started
from server.db.tables import Checkpoint, Experiment, Run, Worker, Workload
from server.metrics.write import store_frames
from server.queue.claim import claim
from server.queue.finish import finish
from server.queue.needs import Needs, parse_needs
from server.runs.delete import delete_expired

URL = "/api/v1/experiments"
BODY = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 3, "measure_gain": False, "control": False}
KEPT = {**BODY, "seeds": 1, "steps": 100, "keep_checkpoints": [40, 100], "params": {"width": 8}}


def name_at(step: int) -> str:
    return f"step-{step:010d}-{'ab' * 16}.pt"


def _submit(team: Team, **body: Any) -> Any:
    response = team.client("submitter").post(URL, json={**BODY, **body})
    assert response.status_code == 201, response.text
    return response.json()


def _faults(team: Team, **body: Any) -> dict[str, dict[str, Any]]:
    response = team.client("submitter").post(URL, json={**BODY, **body})
    assert response.status_code == 422, response.text
    for fault in response.json()["errors"]:
        assert fault["rule"]
        assert fault["remedy"]
    return {fault["field"]: fault for fault in response.json()["errors"]}


def _work(team: Team, run_id: int, *, kept: tuple[int, ...] = (), outcome: str | None = "completed") -> None:
    """Let worker-1 claim the run, write checkpoints, and end it."""
    with team.database.write() as session:
        worker = session.scalars(select(Worker).where(Worker.name == "worker-1")).one()
        for other in session.scalars(select(Run).where(Run.state == "queued", Run.id != run_id)):
            other.priority = -100
        session.flush()
        claimed = claim(session, worker.id, ["cpu"], 60.0)
        assert claimed is not None
        assert claimed.run_id == run_id
    started = Started(numerics="native", environment={}, num_parameters=1, setup_s=0.0)
    told = [
        Checkpointed(step=step, path=f"/data/run-{run_id}/{name_at(step)}", num_bytes=1000, seconds=0.1, kept=True)
        for step in kept
    ]
    frames = [Frame(sequence=number, at=1e9, event=event) for number, event in enumerate([started, *told], 1)]
    with team.database.write() as session:
        store_frames(session, run_id, 1, frames)
        if outcome is not None:
            finish(session, run_id, 1, outcome)  # type: ignore[arg-type]


@pytest.fixture
def origin(team: Team) -> int:
    """The completed FP32 run of an experiment that kept two checkpoints."""
    team.add_worker()
    made = _submit(team, **KEPT)
    run_id = made["runs"][0]["id"]
    assert made["runs"][0]["role"] == "baseline"
    _work(team, run_id, kept=(40, 100))
    return run_id


def _fork(origin: int, **fields: Any) -> dict[str, Any]:
    return {"fork": {"run": origin, "step": 40, "horizon": 20, **fields}, "params": {"width": 8}}


def _configs(team: Team, experiment_id: int) -> list[tuple[Run, RunConfig]]:
    with team.database.read() as session:
        runs = session.scalars(select(Run).where(Run.experiment_id == experiment_id).order_by(Run.id)).all()
    found = []
    for run in runs:
        known = {name: value for name, value in run.config.items() if name in RunConfig.__struct_fields__}
        fields = {"run_id": run.id, "attempt": 1, "recipe": run.recipe, "seed": run.seed, "steps": run.steps}
        found.append((run, msgspec.convert({**known, **fields}, RunConfig)))
    return found


def test_the_baselines_runs_keep_what_was_asked(team: Team) -> None:
    made = _submit(team, **{**KEPT, "seeds": 2, "control": True})
    assert made["keep_steps"] == [40, 100]
    assert made["fork"] is None
    for run, config in _configs(team, made["id"]):
        assert config.keep_steps == ((40, 100) if run.role == "baseline" else ())
    assert _submit(team, steps=50, keep_checkpoints="last")["keep_steps"] == [50]
    assert _submit(team)["keep_steps"] == []


@pytest.mark.parametrize("given", [[101], [], [0], "first", [1] * 21])
def test_what_cannot_be_kept_is_refused(team: Team, given: Any) -> None:
    faults = _refused_fields(team, steps=100, keep_checkpoints=given)
    assert all(field.startswith("keep_checkpoints") for field in faults)
    if given == [101]:
        assert (
            "no checkpoint after step 101"
            in _faults(team, steps=100, keep_checkpoints=given)["keep_checkpoints"]["rule"]
        )


def _refused_fields(team: Team, **body: Any) -> list[str]:
    response = team.client("submitter").post(URL, json={**BODY, **body})
    assert response.status_code == 422
    return [fault["field"] for fault in response.json()["errors"]]


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
    made = _submit(team, **_fork(origin), analyses=[{"kind": "stress", "recipe": "bf16-mixed"}])
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


def test_a_fork_becomes_runs_that_begin_at_the_checkpoint(team: Team, origin: int) -> None:
    made = _submit(team, **_fork(origin), control=True, measure_gain=True)
    assert (made["steps"], made["eval_every"]) == (20, 2)
    assert made["fork"] == {
        "run": origin, "step": 40, "horizon": 20, "steps": 100, "seed": 0, "experiment_id": 1, "name": name_at(40),
        "worker": "worker-1", "elsewhere": False,
    }  # fmt: skip
    kinds = {}
    for run, config in _configs(team, made["id"]):
        kinds[run.kind] = config.fork
        if run.kind == "train":
            assert config.fork is not None
            assert (config.fork.run, config.fork.step, config.fork.name) == (origin, 40, name_at(40))
            assert (config.fork.seed, config.fork.steps, config.steps) == (0, 100, 20)
            assert parse_needs(run.needs).worker == "worker-1"
        else:
            assert config.fork is None, "speed needs no trained weights"
            assert parse_needs(run.needs).worker == ""
    assert kinds.keys() == {"train", "benchmark"}
    assert _submit(team, **_fork(origin, step="last", horizon=7))["fork"]["step"] == 100, "digits has no schedule"


def test_parameters_are_those_of_the_run_unless_given(team: Team, origin: int) -> None:
    made = _submit(team, fork={"run": origin, "horizon": 5})
    assert made["params"]["width"] == 8
    for _, config in _configs(team, made["id"]):
        assert config.workload.params["width"] == 8


def test_only_the_worker_that_has_the_checkpoint_takes_it(team: Team, origin: int) -> None:
    team.add_worker("worker-2")
    with team.database.write() as session:
        for run in session.scalars(select(Run).where(Run.state == "queued")):
            run.state = "cancelled"
    made = _submit(team, **_fork(origin))
    with team.database.write() as session:
        ids = {worker.name: worker.id for worker in session.scalars(select(Worker))}
        assert claim(session, ids["worker-2"], ["cpu"], 60.0) is None
        assert claim(session, ids["worker-1"], ["cpu"], 60.0) is not None
    note = team.client("viewer").get(f"{URL}/{made['id']}").json()["runs"][1]["queue_note"]
    assert note is None, "it waits for its turn alone"
    with team.database.write() as session:
        session.delete(session.get(Worker, ids["worker-2"]))
        session.scalars(select(Checkpoint)).first().is_shared = True  # type: ignore[union-attr]
    shared = _submit(team, **_fork(origin))
    assert shared["fork"]["worker"] == ""
    assert all(parse_needs(run.needs).worker == "" for run, _ in _configs(team, shared["id"]))


def test_a_queued_fork_says_which_worker_it_waits_for(team: Team, origin: int) -> None:
    made = _submit(team, **_fork(origin))
    team.add_worker("worker-2")
    with team.database.write() as session:
        session.scalars(select(Worker).where(Worker.name == "worker-1")).one().state = "offline"
    note = team.client("viewer").get(f"{URL}/{made['id']}").json()["runs"][0]["queue_note"]
    assert "the worker worker-1, which has the checkpoint" in note


@pytest.mark.parametrize(
    ("fork", "field", "told"),
    [
        ({"run": 999}, "fork.run", "no such run"),
        ({"step": 41}, "fork.step", "after steps 40, 100, and none after 41"),
    ],
)
def test_what_is_not_there_is_told(team: Team, origin: int, fork: dict[str, Any], field: str, told: str) -> None:
    assert told in _faults(team, **_fork(origin, **fork))[field]["rule"]


def test_a_run_that_keeps_nothing_has_no_forks(team: Team) -> None:
    team.add_worker()
    made = _submit(team, seeds=1, steps=100)
    queued = made["runs"][0]["id"]
    assert "is queued" in _faults(team, fork={"run": queued, "horizon": 5})["fork.run"]["rule"]
    _work(team, queued)
    fault = _faults(team, fork={"run": queued, "horizon": 5})["fork.run"]
    assert "no kept checkpoint" in fault["rule"]
    assert "keep_checkpoints" in fault["remedy"]


def test_a_running_run_is_forked_once_its_checkpoint_is_there(team: Team) -> None:
    team.add_worker()
    run_id = _submit(team, **KEPT)["runs"][0]["id"]
    _work(team, run_id, outcome=None)
    assert "wait for its step 40" in _faults(team, **_fork(run_id))["fork.run"]["remedy"]
    frame = Frame(
        sequence=9, at=1e9, event=Checkpointed(step=40, path=name_at(40), num_bytes=9, seconds=0.1, kept=True)
    )
    with team.database.write() as session:
        store_frames(session, run_id, 1, [frame])
    assert _submit(team, **_fork(run_id))["fork"]["step"] == 40


def test_ended_otherwise_is_no_origin(team: Team) -> None:
    team.add_worker()
    run_id = _submit(team, **KEPT)["runs"][0]["id"]
    _work(team, run_id, kept=(40,), outcome="failed")
    assert "is failed" in _faults(team, **_fork(run_id))["fork.run"]["rule"]


def test_another_training_is_refused(team: Team, origin: int) -> None:
    assert "width was 8 and is 16" in _faults(team, **{**_fork(origin), "params": {"width": 16}})["params"]["rule"]
    team.add_workload("other")
    assert "trained workload 'digits-cnn'" in _faults(team, **_fork(origin), workload="other")["fork.run"]["rule"]
    assert "ranks=1" in _faults(team, **_fork(origin), ranks=2)["ranks"]["rule"]
    assert "leave it out" in _faults(team, **_fork(origin), steps=20)["steps"]["remedy"]
    assert "cannot be forked" in _faults(team, **_fork(origin), keep_checkpoints="last")["keep_checkpoints"]["rule"]
    team.add_worker("gpu", kinds=("cuda",))
    assert "ran on cpu" in _faults(team, **_fork(origin), device="cuda")["device"]["rule"]


def test_a_run_of_several_hosts_is_no_origin(team: Team, origin: int) -> None:
    with team.database.write() as session:
        run = session.get_one(Run, origin)
        run.config = {**run.config, "ranks": 2, "distribution": {"strategy": "ddp", "nnodes": 2}}
    assert "trained on 2 hosts" in _faults(team, **_fork(origin))["fork.run"]["rule"]


def test_pages_lead_from_a_kept_checkpoint_to_the_form_and_show_the_fork(team: Team, origin: int) -> None:
    browser = team.browser("submitter")
    page = one_line(browser.get(f"/runs/{origin}").text)
    assert "Kept checkpoints" in page
    assert "on worker worker-1" in page
    assert f'href="/experiments/new?fork={origin}@40"' in page
    form = one_line(browser.get(f"/experiments/new?fork={origin}@40").text)
    assert f'name="fork.run" value="{origin}"' in form
    assert 'name="fork.step" value="40"' in form
    assert 'name="fork.horizon" value="10"' in form
    assert 'name="params.width" value="8"' in form
    assert browser.get("/experiments/new?fork=9999@40").status_code == 404
    made = _submit(team, **_fork(origin))
    shown = one_line(browser.get(f"/experiments/{made['id']}").text)
    assert f'from step <b>40</b> of <a href="/runs/{origin}">run {origin}</a>' in shown
    assert "says nothing about a whole training" in shown
    assert f"steps after step 40 of run {origin}" in shown, "the title of the axis"
    run = one_line(browser.get(f"/runs/{made['runs'][0]['id']}").text)
    assert "Step after the fork" in run
    assert f"steps after step 40 of run {origin}" in run
    assert f"Experiment {made['id']}</a> begins at one of them" in one_line(browser.get(f"/runs/{origin}").text)
    assert "Drop them" not in browser.get(f"/runs/{origin}").text
    assert browser.post(f"/runs/{origin}/drop-checkpoints").status_code == 409
    team.client("submitter").post(f"{URL}/{made['id']}/cancel")
    assert browser.post(f"/runs/{origin}/drop-checkpoints").status_code == 303
    assert "Kept checkpoints" not in browser.get(f"/runs/{origin}").text


def test_the_form_tells_faults_of_a_fork_where_they_are(team: Team, origin: int) -> None:
    form = {
        "workload": "digits-cnn", "name": "f", "seeds": "3", "steps": "", "device": "auto", "margin": "",
        "priority": "",
        "recipe.0.on": "1", "recipe.1.on": "1", "fork.run": str(origin), "fork.step": "41", "fork.horizon": "",
    }  # fmt: skip
    answer = team.browser("submitter").post("/experiments/new", data=form)
    assert answer.status_code == 422
    assert 'id="error-fork.horizon"' in answer.text
    answer = team.browser("submitter").post("/experiments/new", data={**form, "fork.horizon": "5"})
    assert answer.status_code == 422
    assert 'id="error-fork.step"' in answer.text
    assert "none after 41" in answer.text


def test_a_changed_workload_is_refused(team: Team, origin: int) -> None:
    with team.database.write() as session:
        old = session.scalars(select(Workload)).one()
        now = datetime.now(UTC)
        session.add(
            Workload(
                name=old.name, source_hash="new", path=old.path, description=old.description, first_seen_at=now,
                seen_at=now,
            )
        )  # fmt: skip
    fault = _faults(team, **_fork(origin))["fork.run"]
    assert "has changed since run" in fault["rule"]
    assert "new now" in fault["rule"]


def test_low_precision_weights_are_no_common_start(team: Team) -> None:
    team.add_worker()
    made = _submit(team, **{**KEPT, "baseline": "bf16-mixed"})
    run_id = next(run["id"] for run in made["runs"] if run["role"] == "baseline")
    _work(team, run_id, kept=(40,))
    assert "trained in bf16-mixed" in _faults(team, **_fork(run_id))["fork.run"]["rule"]
    assert _submit(team, **_fork(run_id), baseline="bf16-mixed")["fork"]["run"] == run_id


def test_a_fork_is_not_forked(team: Team, origin: int) -> None:
    made = _submit(team, **_fork(origin))
    assert "is a fork itself" in _faults(team, **_fork(made["runs"][0]["id"]))["fork.run"]["rule"]


def test_the_horizon_ends_with_the_schedule(team: Team, origin: int) -> None:
    with team.database.write() as session:
        row = session.scalars(select(Workload)).one()
        row.description = {**row.description, "may_schedule": True}
    fault = _faults(team, **_fork(origin, horizon=61))["fork.horizon"]
    assert "60 are left" in fault["rule"]
    assert "at most 60" in fault["remedy"]
    assert _submit(team, **_fork(origin, horizon=60))["steps"] == 60
    assert "earlier" in _faults(team, **_fork(origin, step="last"))["fork.horizon"]["remedy"]


def test_a_checkpoint_nobody_can_reach_is_refused(team: Team, origin: int) -> None:
    with team.database.write() as session:
        session.scalars(select(Worker)).one().state = "offline"
    fault = _faults(team, **_fork(origin))["fork.run"]
    assert "'worker-1', which is not online" in fault["rule"]
    assert "AMPBOARD_ARTIFACTS" in fault["rule"]
    with team.database.write() as session:
        for row in session.scalars(select(Checkpoint)):
            row.is_shared = True
    assert _submit(team, **_fork(origin))["fork"]["worker"] == ""


def test_scripts_neither_fork_nor_keep(team: Team, origin: int) -> None:
    with team.database.write() as session:
        row = session.scalars(select(Workload)).one()
        row.description = {**row.description, "is_script": True}
    assert "owns its loop" in _faults(team, **_fork(origin))["fork"]["rule"]
    assert "owns its loop" in _faults(team, keep_checkpoints="last")["keep_checkpoints"]["rule"]


def test_what_a_fork_needs_stays_until_it_has_ended(team: Team, origin: int) -> None:
    client = team.client("submitter")
    with team.database.write() as session:
        for run in session.scalars(select(Run).where(Run.state == "queued")):
            run.state = "cancelled"
    made = _submit(team, **_fork(origin))
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
    run_id = _submit(team, **KEPT)["runs"][0]["id"]
    _work(team, run_id, kept=(40,), outcome=None)
    newer = name_at(40).replace("ab", "cd")
    frame = Frame(sequence=7, at=1e9, event=Checkpointed(step=40, path=newer, num_bytes=3, seconds=0.1, kept=True))
    with team.database.write() as session:
        store_frames(session, run_id, 1, [frame])
    (one,) = team.client("viewer").get(f"/api/v1/runs/{run_id}/checkpoints").json()["items"]
    assert (one["name"], one["num_bytes"]) == (newer, 3)


def test_a_later_attempt_leaves_the_checkpoint_that_an_open_fork_needs(team: Team) -> None:
    team.add_worker()
    run_id = _submit(team, **KEPT)["runs"][0]["id"]
    _work(team, run_id, kept=(40,), outcome=None)
    fork_id = _submit(team, **_fork(run_id))["id"]

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


def test_the_needs_of_a_worker_survive_spelling() -> None:
    for name in ("gpu-box", "a host: with spaces %20", "müller/2"):
        needs = Needs(labels=frozenset({"fast"}), memory_bytes=5, worker=name)
        assert parse_needs(needs.spell()) == needs
    assert Needs().spell() == ""
