"""What depends on the database behaves the same on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update
from team import Team

from server.access import Principal
from server.accounts import service
from server.db.engine import Database
from server.db.tables import Checkpoint, Experiment, Run, Worker
from server.errors import Unauthenticated
from server.experiments import service as experiments
from server.queue.claim import claim
from server.runs import control

URL = "/api/v1/experiments"


@pytest.fixture
def team(any_database: Database, tmp_path: Path) -> Team:
    team = Team(any_database, tmp_path)
    team.add_workload()
    return team


def _together(number: int, action: Any) -> list[Any]:
    start, results = threading.Barrier(number), []

    def run() -> None:
        start.wait()
        results.append(action())

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_submit_list_cancel_retry(team: Team) -> None:
    client = team.client("submitter")
    made = [
        client.post(URL, json={"workload": "digits-cnn", "name": name, "seeds": 2, "tags": ["100%"]}).json()
        for name in ("b", "ä", "A")
    ]
    for sort in ("-created_at", "created_at", "name", "-name"):
        ids, cursor = [], None
        while True:
            page = client.get(URL, params={"sort": sort, "limit": 1, **({"cursor": cursor} if cursor else {})}).json()
            ids += [item["id"] for item in page["items"]]
            if (cursor := page["next_cursor"]) is None:
                break
        assert sorted(ids) == [item["id"] for item in made], sort
    assert len(client.get(URL, params={"q": "100%"}).json()["items"]) == 3
    queue = client.get("/api/v1/queue", params={"limit": 4}).json()
    after = client.get("/api/v1/queue", params={"limit": 200, "cursor": queue["next_cursor"]}).json()
    assert [run["id"] for run in queue["items"] + after["items"]] == [run["id"] for m in made for run in m["runs"]]
    path = f"{URL}/{made[0]['id']}"
    assert client.post(f"{path}/cancel").json()["state"] == "cancelled"
    assert client.post(f"{path}/retry").json()["progress"]["queued"] == made[0]["progress"]["total"]
    assert client.get("/metrics").status_code == 200


def test_one_link_signs_one_browser_in(team: Team) -> None:
    with team.database.write() as session:
        secret = service.create_sign_in_link(session, service.get_user(session, team.ids["viewer"]))

    def consume() -> str:
        try:
            with team.database.write() as session:
                service.consume_sign_in_link(session, secret)
        except Unauthenticated:
            return "refused"
        return "in"

    assert sorted(_together(8, consume)) == ["in"] + ["refused"] * 7


def test_one_key_makes_one_experiment_however_many_ask_at_once(team: Team) -> None:
    body = {"workload": "digits-cnn", "seeds": 1}

    def submit() -> int:
        client = team.client("submitter")
        response = client.post(URL, json=body, headers={"Idempotency-Key": "same"})
        assert response.status_code == 201, response.text
        return response.json()["id"]

    assert len(set(_together(6, submit))) == 1
    with team.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Experiment)) == 1


def test_one_project_is_made_however_many_ask_at_once(team: Team) -> None:
    def submit() -> int:
        body = {"workload": "digits-cnn", "seeds": 1, "project": "new"}
        return team.client("submitter").post(URL, json=body).status_code

    assert _together(6, submit) == [201] * 6
    names = [item["name"] for item in team.client("viewer").get("/api/v1/projects").json()["items"]]
    assert names == ["new"]


@pytest.mark.parametrize(
    "path", ["runs/99999999999999999999999", "experiments?q=%00", "runs?recipe=%00", "workloads/%00"]
)
def test_values_no_column_holds_are_no_server_error(team: Team, path: str) -> None:
    assert team.client("viewer").get(f"/api/v1/{path}").status_code in (200, 404, 422)


def test_the_sweep_requeues_and_judges(any_database: Database, tmp_path: Path) -> None:
    team = Team(any_database, tmp_path)
    team.settings.sweep_s = 0.1
    team.add_workload()
    team.add_worker()
    made = team.client("submitter").post(URL, json={"workload": "digits-cnn", "seeds": 1, "control": False}).json()
    lost, *others = [run["id"] for run in made["runs"]]
    now = datetime.now(UTC)
    with any_database.write() as session:
        session.execute(
            update(Run).where(Run.id == lost).values(
                state="running", attempt=1, worker_id=session.scalars(select(Worker.id)).one(), started_at=now,
                lease_expires_at=now - timedelta(seconds=1),
            )
        )  # fmt: skip

    def eventually(question: Any) -> None:
        deadline = time.monotonic() + 20
        while not question():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    with team.client("submitter") as client:  # as a context manager: with the background work
        eventually(lambda: client.get(f"/api/v1/runs/{lost}").json()["state"] == "queued")
        assert "stopped answering" in client.get(f"/api/v1/runs/{lost}").json()["reason"]["message"]
        for run_id in (lost, *others):
            client.post(f"/api/v1/runs/{run_id}/cancel")
        eventually(lambda: client.get(f"{URL}/{made['id']}").json()["state"] == "cancelled")


def test_forks_pin_their_checkpoint_and_wait_for_its_worker(team: Team) -> None:
    """The queries look into JSON columns, which the two databases spell differently."""
    client = team.client("submitter")
    team.add_worker()
    team.add_worker("worker-2")
    body = {"workload": "digits-cnn", "seeds": 1, "recipes": ["fp32", "bf16"], "control": False, "measure_gain": False}
    made = client.post(URL, json={**body, "keep_checkpoints": [40]}).json()
    name = f"step-{40:010d}-{'ab' * 16}.pt"
    with team.database.write() as session:
        runs = session.scalars(select(Run).order_by(Run.id)).all()
        for run in runs:
            run.state = "completed"
        session.add(
            Checkpoint(
                run_id=runs[0].id, step=40, attempt=1, name=name, num_bytes=1, worker_name="worker-1",
                created_at=datetime.now(UTC),
            )
        )  # fmt: skip
    fork = {"run": made["runs"][0]["id"], "step": "last", "horizon": 5}
    forked = client.post(URL, json={**body, "fork": fork})
    assert forked.status_code == 201, forked.text
    kept = f"/api/v1/runs/{fork['run']}/checkpoints"
    assert client.get(kept).json()["needed_by"] == [forked.json()["id"]]
    assert client.delete(kept).status_code == 409
    with team.database.write() as session:
        ids = {worker.name: worker.id for worker in session.scalars(select(Worker))}
        assert claim(session, ids["worker-2"], ["cpu"], 60.0) is None
        assert claim(session, ids["worker-1"], ["cpu"], 60.0) is not None
        session.execute(update(Run).where(Run.experiment_id == forked.json()["id"]).values(state="completed"))
    assert client.delete(kept).status_code == 204
    assert client.get(kept).json()["items"] == []


def test_a_checkpoint_is_not_dropped_under_a_fork_that_is_being_submitted(team: Team) -> None:
    """Either the fork is refused or the drop is: never do both succeed."""
    client = team.client("submitter")
    team.add_worker()
    body = {"workload": "digits-cnn", "seeds": 1, "recipes": ["fp32", "bf16"], "control": False, "measure_gain": False}
    made = client.post(URL, json={**body, "keep_checkpoints": [40]}).json()
    run_id = made["runs"][0]["id"]
    for attempt in range(6):
        with team.database.write() as session:
            session.execute(update(Run).values(state="completed"))
            if session.scalar(select(Checkpoint.id)) is None:
                name = f"step-{40:010d}-{attempt:032x}.pt"
                session.add(
                    Checkpoint(
                        run_id=run_id, step=40, attempt=1, name=name, num_bytes=1, worker_name="worker-1",
                        created_at=datetime.now(UTC),
                    )
                )  # fmt: skip
        turns = iter(range(2))

        def act(turns: Any = turns) -> tuple[str, int]:
            if next(turns):
                return "drop", team.client("submitter").delete(f"/api/v1/runs/{run_id}/checkpoints").status_code
            fork = {"fork": {"run": run_id, "horizon": 5}}
            return "fork", team.client("submitter").post(URL, json={**body, **fork}).status_code

        answers = dict(_together(2, act))
        assert answers["fork"] in (201, 409, 422)
        assert answers["drop"] in (204, 409)
        assert (answers["fork"] == 201) != (answers["drop"] == 204), answers


@pytest.mark.parametrize("what", ["experiment", "run"])
def test_a_checkpoint_is_not_dropped_under_a_retry_that_is_not_committed(team: Team, what: str) -> None:
    client = team.client("submitter")
    team.add_worker()
    body = {"workload": "digits-cnn", "seeds": 1, "recipes": ["fp32", "bf16"], "control": False, "measure_gain": False}
    run_id = client.post(URL, json={**body, "keep_checkpoints": [40]}).json()["runs"][0]["id"]
    name = f"step-{40:010d}-{'ab' * 16}.pt"
    with team.database.write() as session:
        session.execute(update(Run).values(state="completed"))
        session.add(
            Checkpoint(
                run_id=run_id, step=40, attempt=1, name=name, num_bytes=1, worker_name="worker-1",
                created_at=datetime.now(UTC),
            )
        )  # fmt: skip
    fork = client.post(URL, json={**body, "fork": {"run": run_id, "horizon": 5}}).json()
    assert client.post(f"{URL}/{fork['id']}/cancel").status_code == 200
    answers: list[int] = []

    def drop() -> None:
        answers.append(team.client("submitter").delete(f"/api/v1/runs/{run_id}/checkpoints").status_code)

    principal = Principal(user_id=team.ids["submitter"], name="submitter", role="submitter", via="token")
    dropping = threading.Thread(target=drop)
    with team.database.write() as session:
        if what == "experiment":
            experiments.retry(session, fork["id"], principal)
        else:
            control.retry(session, fork["runs"][0]["id"], principal)
        dropping.start()
        dropping.join(1.0)
        assert answers == [], "it waits for the retry's end"
    dropping.join()
    assert answers == [409]
