"""Forks in a submission: what is accepted, told and refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from forking import KEPT, URL, configs_of, faults_of, fork_of, name_at, submit, work
from sqlalchemy import select
from team import Team, one_line

from amp_core.events import Checkpointed, Frame
from server.db.tables import Checkpoint, Run, Worker, Workload
from server.metrics.write import store_frames
from server.queue.claim import claim
from server.queue.needs import Needs, parse_needs


def test_a_fork_becomes_runs_that_begin_at_the_checkpoint(team: Team, origin: int) -> None:
    made = submit(team, **fork_of(origin), control=True, measure_gain=True)
    assert (made["steps"], made["eval_every"]) == (20, 2)
    assert made["fork"] == {
        "run": origin, "step": 40, "horizon": 20, "steps": 100, "seed": 0, "experiment_id": 1, "name": name_at(40),
        "worker": "worker-1", "elsewhere": False,
    }  # fmt: skip
    kinds = {}
    for run, config in configs_of(team, made["id"]):
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
    assert submit(team, **fork_of(origin, step="last", horizon=7))["fork"]["step"] == 100, "digits has no schedule"


def test_parameters_are_those_of_the_run_unless_given(team: Team, origin: int) -> None:
    made = submit(team, fork={"run": origin, "horizon": 5})
    assert made["params"]["width"] == 8
    for _, config in configs_of(team, made["id"]):
        assert config.workload.params["width"] == 8


def test_only_the_worker_that_has_the_checkpoint_takes_it(team: Team, origin: int) -> None:
    team.add_worker("worker-2")
    with team.database.write() as session:
        for run in session.scalars(select(Run).where(Run.state == "queued")):
            run.state = "cancelled"
    made = submit(team, **fork_of(origin))
    with team.database.write() as session:
        ids = {worker.name: worker.id for worker in session.scalars(select(Worker))}
        assert claim(session, ids["worker-2"], ["cpu"], 60.0) is None
        assert claim(session, ids["worker-1"], ["cpu"], 60.0) is not None
    note = team.client("viewer").get(f"{URL}/{made['id']}").json()["runs"][1]["queue_note"]
    assert note is None, "it waits for its turn alone"
    with team.database.write() as session:
        session.delete(session.get(Worker, ids["worker-2"]))
        session.scalars(select(Checkpoint)).first().is_shared = True  # type: ignore[union-attr]
    shared = submit(team, **fork_of(origin))
    assert shared["fork"]["worker"] == ""
    assert all(parse_needs(run.needs).worker == "" for run, _ in configs_of(team, shared["id"]))


def test_a_queued_fork_says_which_worker_it_waits_for(team: Team, origin: int) -> None:
    made = submit(team, **fork_of(origin))
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
    assert told in faults_of(team, **fork_of(origin, **fork))[field]["rule"]


def test_a_run_that_keeps_nothing_has_no_forks(team: Team) -> None:
    team.add_worker()
    made = submit(team, seeds=1, steps=100)
    queued = made["runs"][0]["id"]
    assert "is queued" in faults_of(team, fork={"run": queued, "horizon": 5})["fork.run"]["rule"]
    work(team, queued)
    fault = faults_of(team, fork={"run": queued, "horizon": 5})["fork.run"]
    assert "no kept checkpoint" in fault["rule"]
    assert "keep_checkpoints" in fault["remedy"]


def test_a_running_run_is_forked_once_its_checkpoint_is_there(team: Team) -> None:
    team.add_worker()
    run_id = submit(team, **KEPT)["runs"][0]["id"]
    work(team, run_id, outcome=None)
    assert "wait for its step 40" in faults_of(team, **fork_of(run_id))["fork.run"]["remedy"]
    frame = Frame(
        sequence=9, at=1e9, event=Checkpointed(step=40, path=name_at(40), num_bytes=9, seconds=0.1, kept=True)
    )
    with team.database.write() as session:
        store_frames(session, run_id, 1, [frame])
    assert submit(team, **fork_of(run_id))["fork"]["step"] == 40


def test_ended_otherwise_is_no_origin(team: Team) -> None:
    team.add_worker()
    run_id = submit(team, **KEPT)["runs"][0]["id"]
    work(team, run_id, kept=(40,), outcome="failed")
    assert "is failed" in faults_of(team, **fork_of(run_id))["fork.run"]["rule"]


def test_another_training_is_refused(team: Team, origin: int) -> None:
    assert "width was 8 and is 16" in faults_of(team, **{**fork_of(origin), "params": {"width": 16}})["params"]["rule"]
    team.add_workload("other")
    assert "trained workload 'digits-cnn'" in faults_of(team, **fork_of(origin), workload="other")["fork.run"]["rule"]
    assert "ranks=1" in faults_of(team, **fork_of(origin), ranks=2)["ranks"]["rule"]
    assert "leave it out" in faults_of(team, **fork_of(origin), steps=20)["steps"]["remedy"]
    assert "cannot be forked" in faults_of(team, **fork_of(origin), keep_checkpoints="last")["keep_checkpoints"]["rule"]
    team.add_worker("gpu", kinds=("cuda",))
    assert "ran on cpu" in faults_of(team, **fork_of(origin), device="cuda")["device"]["rule"]


def test_a_run_of_several_hosts_is_no_origin(team: Team, origin: int) -> None:
    with team.database.write() as session:
        run = session.get_one(Run, origin)
        run.config = {**run.config, "ranks": 2, "distribution": {"strategy": "ddp", "nnodes": 2}}
    assert "trained on 2 hosts" in faults_of(team, **fork_of(origin))["fork.run"]["rule"]


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
    made = submit(team, **fork_of(origin))
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
    fault = faults_of(team, **fork_of(origin))["fork.run"]
    assert "has changed since run" in fault["rule"]
    assert "new now" in fault["rule"]


def test_low_precision_weights_are_no_common_start(team: Team) -> None:
    team.add_worker()
    made = submit(team, **{**KEPT, "baseline": "bf16-mixed"})
    run_id = next(run["id"] for run in made["runs"] if run["role"] == "baseline")
    work(team, run_id, kept=(40,))
    assert "trained in bf16-mixed" in faults_of(team, **fork_of(run_id))["fork.run"]["rule"]
    assert submit(team, **fork_of(run_id), baseline="bf16-mixed")["fork"]["run"] == run_id


def test_a_fork_is_not_forked(team: Team, origin: int) -> None:
    made = submit(team, **fork_of(origin))
    assert "is a fork itself" in faults_of(team, **fork_of(made["runs"][0]["id"]))["fork.run"]["rule"]


def test_the_horizon_ends_with_the_schedule(team: Team, origin: int) -> None:
    with team.database.write() as session:
        row = session.scalars(select(Workload)).one()
        row.description = {**row.description, "may_schedule": True}
    fault = faults_of(team, **fork_of(origin, horizon=61))["fork.horizon"]
    assert "60 are left" in fault["rule"]
    assert "at most 60" in fault["remedy"]
    assert submit(team, **fork_of(origin, horizon=60))["steps"] == 60
    assert "earlier" in faults_of(team, **fork_of(origin, step="last"))["fork.horizon"]["remedy"]


def test_a_checkpoint_nobody_can_reach_is_refused(team: Team, origin: int) -> None:
    with team.database.write() as session:
        session.scalars(select(Worker)).one().state = "offline"
    fault = faults_of(team, **fork_of(origin))["fork.run"]
    assert "'worker-1', which is not online" in fault["rule"]
    assert "AMPBOARD_ARTIFACTS" in fault["rule"]
    with team.database.write() as session:
        for row in session.scalars(select(Checkpoint)):
            row.is_shared = True
    assert submit(team, **fork_of(origin))["fork"]["worker"] == ""


def test_scripts_neither_fork_nor_keep(team: Team, origin: int) -> None:
    with team.database.write() as session:
        row = session.scalars(select(Workload)).one()
        row.description = {**row.description, "is_script": True}
    assert "owns its loop" in faults_of(team, **fork_of(origin))["fork"]["rule"]
    assert "owns its loop" in faults_of(team, keep_checkpoints="last")["keep_checkpoints"]["rule"]


def test_the_needs_of_a_worker_survive_spelling() -> None:
    for name in ("gpu-box", "a host: with spaces %20", "müller/2"):
        needs = Needs(labels=frozenset({"fast"}), memory_bytes=5, worker=name)
        assert parse_needs(needs.spell()) == needs
    assert Needs().spell() == ""
