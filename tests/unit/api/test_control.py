"""Pausing, resuming, priorities, retrying and cloning of runs, draining of workers, and when it is whose turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from team import Team, one_line

from server.db.tables import Run, Worker
from server.pages.run_columns import chosen, rows_of
from server.queue.claim import claim
from server.queue.finish import finish
from server.queue.needs import parse_needs

URL = "/api/v1"


def submit(team: Team, role: str = "submitter", **body: Any) -> dict[str, Any]:
    body = {"workload": "digits-cnn", "seeds": 1, "recipes": ["fp32", "bf16"], "control": False,
            "measure_gain": False, **body}  # fmt: skip
    made: dict[str, Any] = team.client(role).post(f"{URL}/experiments", json=body).json()
    assert "runs" in made, made
    return made


def add_worker(team: Team, **fields: Any) -> int:
    now = datetime.now(UTC)
    given = {"name": "host-1", "host": "host", "pid": 1, "version": "0", "slots": 1, "state": "online",
             "devices": [{"kind": "cpu", "device": "cpu", "slots": 1}], "started_at": now, "heartbeat_at": now,
             **fields}  # fmt: skip
    with team.database.write() as session:
        worker = Worker(**given)
        session.add(worker)
        session.flush()
        return worker.id


def post(team: Team, path: str, body: Any = None, role: str = "submitter", expect: int = 200) -> dict[str, Any]:
    answer = team.client(role).post(f"{URL}/{path}", json=body if body is not None else {})
    assert answer.status_code == expect, answer.text
    found: dict[str, Any] = answer.json()
    return found


def queue(team: Team, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = team.client("viewer").get(f"{URL}/queue", params=query).json()
    return found


def test_a_run_is_paused_resumed_and_put_forward(team: Team) -> None:
    made = submit(team)
    first, second = (run["id"] for run in made["runs"])
    assert post(team, f"runs/{first}/pause")["state"] == "paused"
    detail = team.client("viewer").get(f"{URL}/experiments/{made['id']}").json()
    assert (detail["progress"]["paused"], detail["progress"]["queued"]) == (1, 1)
    assert "is paused" in post(team, f"runs/{first}/pause", expect=409)["detail"]
    assert post(team, f"runs/{first}/priority", {"priority": 3})["priority"] == 3
    assert post(team, f"runs/{first}/resume")["state"] == "queued"
    assert "is queued, and not paused" in post(team, f"runs/{first}/resume", expect=409)["detail"]
    assert [run["id"] for run in queue(team)["items"]] == [first, second]
    assert post(team, f"runs/{second}/priority", {"priority": 200}, expect=422)
    other = add_worker(team)
    with team.database.write() as session:
        assert claim(session, other, ["cpu"], 60) is not None
    waits = post(team, f"runs/{first}/pause")
    assert (waits["state"], waits["pause_requested_at"] is not None) == ("running", True)
    assert "not paused yet" in post(team, f"runs/{first}/resume", expect=409)["detail"]


def test_an_experiment_is_paused_resumed_and_put_forward_as_a_whole(team: Team) -> None:
    older, newer = submit(team)["id"], submit(team)
    assert post(team, f"experiments/{older}/pause")["progress"]["paused"] == 2
    assert "nothing to pause" in post(team, f"experiments/{older}/pause", expect=409)["detail"]
    assert post(team, f"experiments/{older}/resume")["progress"]["queued"] == 2
    assert "nothing to resume" in post(team, f"experiments/{older}/resume", expect=409)["detail"]
    post(team, f"experiments/{newer['id']}/priority", {"priority": 1})
    assert [run["experiment_id"] for run in queue(team)["items"]] == [newer["id"]] * 2 + [older] * 2
    post(team, f"experiments/{older}/pause")
    assert post(team, f"experiments/{older}/cancel")["state"] == "cancelled", "paused runs are cancelled, too"
    assert "has ended" in post(team, f"experiments/{older}/priority", {"priority": 1}, expect=409)["detail"]


@pytest.mark.parametrize("action", ["pause", "resume", "priority", "retry"])
def test_only_the_owner_and_an_admin_control_a_run(team: Team, action: str) -> None:
    run = submit(team, role="admin")["runs"][0]["id"]
    body = {"priority": 1} if action == "priority" else {}
    assert "belongs to" in post(team, f"runs/{run}/{action}", body, expect=403)["detail"]


def test_one_run_is_retried_and_cloned(team: Team) -> None:
    made = submit(team, recipes=["fp32", "bf16", "fp16"], seeds=[3, 4])
    run = next(run for run in made["runs"] if run["recipe_name"] == "16-mixed" and run["seed"] == 4)
    assert "only a failed or cancelled" in post(team, f"runs/{run['id']}/retry", expect=409)["detail"]
    post(team, f"runs/{run['id']}/cancel")
    assert post(team, f"runs/{run['id']}/retry")["state"] == "queued"
    clone = post(team, f"runs/{run['id']}/clone", {"steps": 7}, expect=201)
    assert [(r["recipe_name"], r["seed"], r["steps"]) for r in clone["runs"]] == [("32-true", 4, 7), ("16-mixed", 4, 7)]
    baseline = next(run for run in made["runs"] if run["recipe_name"] == "32-true")
    again = post(team, f"runs/{baseline['id']}/clone", expect=201)
    assert [r["recipe_name"] for r in again["runs"]] == ["32-true", "bf16-mixed"]


def test_a_drained_worker_is_shown_and_takes_no_more(team: Team) -> None:
    submit(team)
    worker = add_worker(team)
    post(team, f"workers/{worker}/drain", role="submitter", expect=403)
    assert post(team, f"workers/{worker}/drain", role="admin")["state"] == "draining"
    with team.database.write() as session:
        assert claim(session, worker, ["cpu"], 60) is None
    assert "no live worker has a device (cpu)" in queue(team)["items"][0]["queue_note"]
    assert post(team, f"workers/{worker}/undrain", role="admin")["state"] == "online"
    post(team, "workers/99/drain", role="admin", expect=404)


def test_turns_come_from_measured_durations(team: Team) -> None:
    made = submit(team, seeds=2)
    worker = add_worker(team)
    assert [run["expected_start_at"] for run in queue(team)["items"]][1:] == [None] * 3, "nothing was measured yet"
    with team.database.write() as session:
        claimed = claim(session, worker, ["cpu"], 60)
        assert claimed is not None
        started = session.get_one(Run, claimed.run_id).started_at
        assert started is not None
        finish(session, claimed.run_id, 1, "completed", now=started + timedelta(seconds=50))
    items = queue(team)["items"]
    starts = [datetime.fromisoformat(run["expected_start_at"]) for run in items]
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(starts)]
    assert gaps == [50.0, 50.0]
    assert [run["queue_position"] for run in items] == [1, 2, 3]
    assert {run["id"] for run in items} == {run["id"] for run in made["runs"]} - {claimed.run_id}
    first = queue(team, limit=2)
    rest = queue(team, limit=2, cursor=first["next_cursor"])
    assert [run["id"] for run in first["items"] + rest["items"]] == [run["id"] for run in items]


def test_what_holds_a_run_back_is_said(team: Team) -> None:
    add_worker(team, labels=["slow"])
    run = submit(team, labels=["fast"], device_memory_bytes=2**30)["runs"][0]["id"]
    with team.database.read() as session:
        needs = parse_needs(session.get_one(Run, run).needs)
    assert (needs.labels, needs.memory_bytes) == ({"fast"}, 2**30)
    note = "no live worker has a device (cpu) with what it needs: the label fast, 1 GiB of memory"
    assert team.client("viewer").get(f"{URL}/runs/{run}").json()["queue_note"] == note
    shown = one_line(team.browser("viewer").get("/experiments/1").text)
    assert f'<a href="/runs/{run}">Run {run}</a> waits: {note}</p>' in shown
    bad = team.client("submitter").post(f"{URL}/experiments", json={"workload": "digits-cnn", "labels": ["no blank"]})
    assert bad.status_code == 422


def test_a_project_limits_its_runs_at_work(team: Team) -> None:
    worker = add_worker(team, slots=2, devices=[{"kind": "cpu", "device": "cpu", "slots": 2}])
    submit(team)
    project = team.client("viewer").get(f"{URL}/projects").json()["items"][0]
    changed = team.client("admin").patch(f"{URL}/projects/{project['id']}", json={"max_running": 1}).json()
    assert (changed["max_running"], changed["retention_days"]) == (1, None)
    with team.database.write() as session:
        assert claim(session, worker, ["cpu", "cpu"], 60) is not None
        assert claim(session, worker, ["cpu"], 60) is None
    assert queue(team)["items"][0]["queue_note"] == "its project has 1 runs at work, of 1 allowed"


@pytest.mark.parametrize("action", ["pause", "resume", "priority", "cancel"])
def test_the_buttons_of_the_pages_do_the_same(team: Team, action: str) -> None:
    made = submit(team)
    run = made["runs"][0]["id"]
    if action == "resume":
        post(team, f"runs/{run}/pause")
    page = team.client("submitter").get(f"/runs/{run}", headers={"Accept": "text/html"}).text
    assert f'action="/runs/{run}/{action}"' in page
    answer = team.client("submitter").post(f"/runs/{run}/{action}", data={"priority": "4"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run}")
    after = team.client("viewer").get(f"{URL}/runs/{run}").json()
    expected = {"pause": "paused", "resume": "queued", "priority": "queued", "cancel": "cancelled"}[action]
    assert (after["state"], after["priority"]) == (expected, 4 if action == "priority" else 0)


def test_a_cancel_that_comes_while_a_run_is_put_aside_holds(team: Team) -> None:
    run = submit(team)["runs"][0]["id"]
    worker = add_worker(team)
    with team.database.write() as session:
        claimed = claim(session, worker, ["cpu"], 60)
    assert claimed is not None
    assert claimed.run_id == run
    post(team, f"runs/{run}/pause")
    post(team, f"runs/{run}/cancel")
    with team.database.write() as session:
        finish(session, run, 1, "paused")
    shown = team.client("viewer").get(f"{URL}/runs/{run}").json()
    assert (shown["state"], shown["reason"]["message"]) == ("cancelled", "Cancelled by submitter.")
    assert post(team, f"runs/{run}/retry")["state"] == "queued"


def test_what_runs_elsewhere_is_not_paused(team: Team) -> None:
    body = {"workload": "mine", "name": "mine", "recipe": "bf16", "host": "host", "steps": 10}
    made = post(team, "runs", body, expect=201)
    told = post(team, f"runs/{made['id']}/pause", expect=409)["detail"]
    assert "tracked from outside" in told
    assert "tracked from outside" in post(team, f"experiments/{made['experiment_id']}/pause", expect=409)["detail"]


def test_a_benchmark_has_no_step_anywhere(team: Team) -> None:
    made = submit(team, measure_gain=True, steps=4000)
    benchmark = next(run["id"] for run in made["runs"] if run["kind"] == "benchmark")
    training = next(run["id"] for run in made["runs"] if run["kind"] == "train")
    browser = team.browser("viewer")
    assert "data-step-progress" in browser.get(f"/runs/{training}").text
    page = browser.get(f"/runs/{benchmark}").text
    assert "data-step-progress" not in page
    assert "of 4000" not in page
    with team.database.write() as session:
        for run in (session.get_one(Run, benchmark), session.get_one(Run, training)):
            run.state = "running"
        rows = rows_of(session, [session.get_one(Run, run) for run in (benchmark, training)], chosen("step"))
    assert [row["cells"]["step"]["text"] for row in rows] == ["–", "0 of 4,000"]
