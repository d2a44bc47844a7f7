"""Lists, details, cancel and retry."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from team import Team

from server.db.tables import Attempt, Experiment, Run, Series, Worker

URL = "/api/v1/experiments"


def _submit(team: Team, role: str = "submitter", **body: Any) -> Any:
    body = {"workload": "digits-cnn", "seeds": 1, "recipes": ["fp32", "bf16"], "control": False, **body}
    return team.client(role).post(URL, json=body).json()


def _pages(team: Team, url: str, **params: Any) -> list[Any]:
    items, cursor = [], None
    for _ in range(100):
        query = {**params, **({"cursor": cursor} if cursor else {})}
        page = team.client("viewer").get(url, params=query).json()
        items += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return items
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("sort", ["-created_at", "created_at", "name", "-name"])
@pytest.mark.parametrize("limit", [1, 2, 7])
def test_pages_hold_each_experiment_once_in_order(team: Team, sort: str, limit: int) -> None:
    names = ["b", "A", "b", "c", "B"]
    made = [_submit(team, name=name)["id"] for name in names]
    with team.database.write() as session:  # two at the very same moment
        moment = session.get_one(Experiment, made[1]).created_at
        session.execute(update(Experiment).where(Experiment.id == made[2]).values(created_at=moment))
    items = _pages(team, URL, sort=sort, limit=limit)
    assert sorted(item["id"] for item in items) == made
    key = (lambda item: item["name"].lower()) if "name" in sort else (lambda item: item["created_at"])
    keys = [key(item) for item in items]
    assert keys == sorted(keys, reverse=sort.startswith("-"))


def test_filters_and_search(team: Team) -> None:
    team.add_workload("stdlib-gpt")
    first = _submit(team, name="100% sure_thing", tags=["night"], note="about überflow", project="vision")["id"]
    second = _submit(team, role="admin", name="other", workload="stdlib-gpt")["id"]
    team.client("submitter").post(f"{URL}/{first}/cancel")

    def ids(**params: str) -> set[int]:
        return {item["id"] for item in _pages(team, URL, **params)}

    assert ids() == {first, second}
    assert ids(q="SURE") == ids(q="100%") == ids(q="sure_thing") == ids(q="night") == ids(q="berflow") == {first}
    assert ids(q="gpt") == {second}
    assert ids(q="sure%thing") == ids(q="o_her") == ids(q="\\") == ids(q="' or 1=1 --") == set()
    assert ids(state="cancelled") == ids(owner="submitter") == ids(project="vision") == {first}
    assert ids(workload="stdlib-gpt") == ids(owner="admin") == ids(state="queued") == {second}
    assert ids(owner="nobody") == set()


@pytest.mark.parametrize(
    "params",
    [
        {"cursor": "nonsense"}, {"cursor": "e30"}, {"cursor": "WyJhIl0"}, {"cursor": "WyJhIiwgMV0"}, {"limit": 0},
        {"limit": 201}, {"sort": "colour"}, {"state": "dead"}, {"q": "x" * 401},
    ],
)  # fmt: skip
def test_bad_queries_are_refused(team: Team, params: dict[str, Any]) -> None:
    response = team.client("viewer").get(URL, params=params)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] in params


def test_a_viewer_finds_and_opens_the_teams_work(team: Team) -> None:
    made = _submit(team)
    viewer = team.client("viewer")
    assert viewer.get(URL).json()["items"][0]["id"] == made["id"]
    assert viewer.get(f"{URL}/{made['id']}").json()["name"] == made["name"]
    assert viewer.get(f"/api/v1/runs/{made['runs'][0]['id']}").status_code == 200
    assert viewer.get("/api/v1/projects").json()["items"][0]["num_experiments"] == 1


@pytest.mark.parametrize(
    "path", ["experiments/99", "runs/99", "workloads/none", f"runs/{2**63}", f"experiments/{10**30}"]
)
def test_what_does_not_exist(team: Team, path: str) -> None:
    response = team.client("viewer").get(f"/api/v1/{path}")
    assert response.status_code in (404, 422)
    assert response.headers["content-type"] == "application/problem+json"


def test_a_run_in_full(team: Team) -> None:
    made = _submit(team)
    run_id, now = made["runs"][0]["id"], datetime.now(UTC)
    team.add_worker()
    with team.database.write() as session:
        worker = session.scalars(select(Worker)).one()
        run = session.get_one(Run, run_id)
        run.state, run.attempt, run.worker_id, run.started_at, run.numerics = "running", 2, worker.id, now, "native"
        run.environment, run.lease_expires_at = {"torch": "2.13"}, now + timedelta(minutes=1)
        session.add(Attempt(run_id=run_id, number=1, worker_name="w0", started_at=now, ended_at=now, outcome="lost"))
        session.add(Attempt(run_id=run_id, number=2, worker_name="w1", started_at=now))
        for attempt, value in ((1, 0.5), (2, float("nan"))):
            session.add(
                Series(
                    run_id=run_id, attempt=attempt, name="train/loss", num_points=3, first_step=1, last_step=3,
                    last_value=struct.pack("<d", value), finite_last=None, finite_min=0.25, finite_max=1.5, num_nan=1,
                    first_non_finite_step=3,
                )
            )  # fmt: skip
    body = team.client("viewer").get(f"/api/v1/runs/{run_id}").json()
    assert body["metrics"]["train/loss"] == {
        "last": "NaN", "min": 0.25, "max": 1.5, "mean": 0.0, "num_points": 3, "num_nan": 1, "num_pos_inf": 0,
        "num_neg_inf": 0, "first_non_finite_step": 3,
    }  # fmt: skip
    assert (body["worker"], body["queue_position"], body["environment"]) == ("worker-1", None, {"torch": "2.13"})
    assert [attempt["outcome"] for attempt in body["attempts"]] == ["lost", None]
    workers = team.client("viewer").get("/api/v1/workers").json()["items"]
    assert [run["id"] for run in workers[0]["runs"]] == [run_id]
    queue = team.client("viewer").get("/api/v1/queue").json()
    assert [run["id"] for run in queue["running"]] == [run_id]


def test_a_silent_worker_is_offline(team: Team) -> None:
    team.add_worker()
    with team.database.write() as session:
        session.execute(update(Worker).values(heartbeat_at=datetime.now(UTC) - timedelta(minutes=1)))
    assert team.client("viewer").get("/api/v1/workers").json()["items"][0]["state"] == "offline"
    assert "ampboard_workers_live 0" in team.client("viewer").get("/metrics").text


def test_the_queue_is_by_priority_then_age_and_pages(team: Team) -> None:
    low, high = _submit(team, priority=-5, seeds=2), _submit(team, priority=7)
    middle = _submit(team)
    expected = [run["id"] for experiment in (high, middle, low) for run in experiment["runs"]]
    assert [run["id"] for run in _pages(team, "/api/v1/queue", limit=2)] == expected
    shown = team.client("viewer").get(f"/api/v1/runs/{low['runs'][-1]['id']}").json()
    assert shown["queue_position"] == len(expected)


def test_lists_of_runs_filter_and_page(team: Team) -> None:
    first, second = _submit(team, name="alpha"), _submit(team, name="beta")
    every = sorted((run["id"] for made in (first, second) for run in made["runs"]), reverse=True)
    assert [run["id"] for run in _pages(team, "/api/v1/runs", limit=2)] == every
    assert {run["experiment_id"] for run in _pages(team, "/api/v1/runs", q="ALPH")} == {first["id"]}
    assert {run["recipe_name"] for run in _pages(team, "/api/v1/runs", recipe="bf16-mixed")} == {"bf16-mixed"}
    assert {run["kind"] for run in _pages(team, "/api/v1/runs", kind="benchmark")} == {"benchmark"}
    assert _pages(team, "/api/v1/runs", state="completed") == []
    assert _pages(team, "/api/v1/runs", workload="other") == []


def test_cancelling_is_the_owners_and_an_admins(team: Team) -> None:
    made = _submit(team, role="admin")
    refused = team.client("submitter").post(f"{URL}/{made['id']}/cancel")
    assert refused.status_code == 403
    assert "belongs to admin" in refused.json()["detail"]
    assert team.client("submitter").post(f"/api/v1/runs/{made['runs'][0]['id']}/cancel").status_code == 403
    mine = _submit(team)
    assert team.client("admin").post(f"{URL}/{mine['id']}/cancel").json()["state"] == "cancelled"


def test_cancel_then_retry(team: Team) -> None:
    made, client = _submit(team), team.client("submitter")
    cancelled = client.post(f"{URL}/{made['id']}/cancel").json()
    assert cancelled["progress"] == {
        "total": 3, "queued": 0, "running": 0, "paused": 0, "completed": 0, "failed": 0, "cancelled": 3,
    }  # fmt: skip
    assert "submitter" in cancelled["runs"][0]["reason"]["message"]
    assert client.post(f"{URL}/{made['id']}/cancel").status_code == 409
    again = client.post(f"{URL}/{made['id']}/retry").json()
    assert again["progress"]["queued"] == 3
    assert client.post(f"{URL}/{made['id']}/retry").status_code == 409


def test_cancelling_one_run(team: Team) -> None:
    made, client = _submit(team), team.client("submitter")
    run_id = made["runs"][1]["id"]
    assert client.post(f"/api/v1/runs/{run_id}/cancel").json()["state"] == "cancelled"
    assert client.post(f"/api/v1/runs/{run_id}/cancel").status_code == 409
    assert client.get(f"{URL}/{made['id']}").json()["progress"]["queued"] == 2


def test_a_dead_broker_does_not_fail_a_submission(team: Team, caplog: pytest.LogCaptureFixture) -> None:
    assert _submit(team)["state"] == "queued"
    assert "broker" in caplog.text


def test_figures_for_prometheus(team: Team) -> None:
    _submit(team)
    team.add_worker(slots=3)
    text = team.client("viewer").get("/metrics").text
    assert 'ampboard_runs{state="queued"} 3' in text
    assert "ampboard_worker_slots 3" in text
    assert all(line.startswith(("#", "ampboard_")) for line in text.strip().splitlines())
