"""Many experiments or runs at once: each on its own, audited, undone again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session
from team import Team

from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Artifact, Audit, Experiment, Run, RunParameter
from server.runs.delete import delete_expired, purge_deleted


@pytest.fixture
def team(database: Database, tmp_path: Path) -> Team:
    made = Team(database, tmp_path)
    made.add_workload()
    made.add_worker()
    return made


def submit(team: Team, role: str = "submitter", **body: Any) -> int:
    answer = team.client(role).post("/api/v1/experiments", json={"workload": "digits-cnn", "seeds": 1, **body})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def act(team: Team, noun: str, action: str, ids: list[int], role: str = "submitter", **more: Any) -> dict[str, Any]:
    answer = team.client(role).post(f"/api/v1/{noun}/actions", json={"action": action, "ids": ids, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def listed(team: Team, noun: str, **params: Any) -> list[int]:
    answer = team.client("viewer").get(f"/api/v1/{noun}", params={"limit": 200, **params})
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def test_what_cannot_be_done_is_told_and_keeps_nothing_else_back(team: Team) -> None:
    mine, other = submit(team), submit(team, "admin")
    told = act(team, "experiments", "cancel", [mine, other, 999, mine])
    assert told["done"] == [mine]
    assert [(one["id"], one["reason"].split(":")[0]) for one in told["refused"]] == [
        (other, f"experiment {other} belongs to admin"),
        (999, "experiment 999 does not exist"),
    ]
    again = act(team, "experiments", "cancel", [mine])
    assert (again["done"], "nothing to cancel" in again["refused"][0]["reason"]) == ([], True)
    retried = act(team, "experiments", "retry", [mine])
    assert retried["done"] == [mine]


def test_tags_and_archives_of_experiments_and_runs(team: Team) -> None:
    first, second = submit(team), submit(team)
    run = listed(team, "runs", experiment_id=first)[0]
    assert act(team, "experiments", "tag", [first, second], tag="старый")["done"] == [first, second]
    assert act(team, "runs", "tag", [run], tag="look")["done"] == [run]
    assert listed(team, "experiments", q='tag:"старый"') == [second, first]
    assert listed(team, "runs", q="tag:look") == [run]
    act(team, "experiments", "untag", [second], tag="старый")
    assert listed(team, "experiments", q="tag:старый") == [first]
    act(team, "experiments", "archive", [first])
    assert listed(team, "experiments") == [second]
    assert listed(team, "experiments", archived="only") == [first]
    assert len(listed(team, "runs", experiment_id=first)) > 0, "the runs of one experiment are shown whatever it is"
    assert run not in listed(team, "runs")
    assert run in listed(team, "runs", archived="any")
    act(team, "experiments", "unarchive", [first])
    assert listed(team, "experiments") == [second, first]


def test_a_deletion_is_undone_until_it_is_purged(team: Team) -> None:
    first, second = submit(team), submit(team)
    act(team, "experiments", "cancel", [first, second])
    runs = listed(team, "runs", experiment_id=first)
    assert act(team, "runs", "delete", runs[:1])["undo_until"]
    told = act(team, "experiments", "delete", [first, second])
    assert told["done"] == [first, second]
    assert (listed(team, "experiments"), listed(team, "runs")) == ([], [])
    of_experiment, of_run = f"experiments/{first}", f"runs/{runs[1]}"
    for path in (of_experiment, f"{of_experiment}/comparison", of_run, f"{of_run}/series"):
        assert team.client("viewer").get(f"/api/v1/{path}").status_code == 404, path
    assert "is deleted itself" in act(team, "runs", "restore", runs[:1])["refused"][0]["reason"]
    assert act(team, "experiments", "restore", [first], role="admin")["done"] == [first]
    assert listed(team, "runs", experiment_id=first) == runs[1:], "the run deleted before stays deleted"
    assert act(team, "runs", "restore", runs[:1])["done"] == runs[:1]
    assert purge_deleted(team.database, undo_s=0) == 1
    assert "can be restored" in act(team, "experiments", "restore", [second])["refused"][0]["reason"]
    with team.database.read() as session:
        assert set(session.scalars(select(Run.experiment_id))) == {first}
        actions = session.scalars(select(Audit.action).order_by(Audit.id)).all()
    assert [name for name in actions if "restore" in name] == ["experiment.restore", "run.restore"]


@pytest.mark.parametrize(
    "body",
    [
        {"action": "tag", "ids": [1]}, {"action": "cancel", "ids": [1], "tag": "x"}, {"action": "burn", "ids": [1]},
        {"action": "cancel", "ids": []}, {"action": "cancel", "ids": ["1"]}, {"action": "cancel", "ids": [0]},
        {"action": "cancel", "ids": list(range(1, 502))}, {"action": "tag", "ids": [1], "tag": "x" * 41},
    ],
)  # fmt: skip
def test_nonsense_is_refused(team: Team, body: dict[str, Any]) -> None:
    assert team.client("admin").post("/api/v1/runs/actions", json=body).status_code == 422


def test_a_run_has_so_many_tags(team: Team) -> None:
    submit(team)
    run = listed(team, "runs")[0]
    for number in range(20):
        assert act(team, "runs", "tag", [run], tag=f"t{number}")["done"] == [run]
    assert "20 are the most" in act(team, "runs", "tag", [run], tag="more")["refused"][0]["reason"]
    assert act(team, "runs", "tag", [run], tag="t3")["done"] == [run]


def test_what_only_a_deleted_run_has_is_nowhere_to_be_found(team: Team) -> None:
    gone, here = submit(team, params={"width": 77}), submit(team, params={"width": 32})
    act(team, "experiments", "cancel", [gone, here])
    run, other = (listed(team, "runs", experiment_id=one)[0] for one in (gone, here))
    now = datetime.now(UTC)
    with team.database.write() as session:
        for run_id, name, text in ((run, "secret", "x"), (run, "both", "x"), (other, "both", "y")):
            session.add(RunParameter(run_id=run_id, name=name, text=text))
        session.add(Artifact(id=5, run_id=run, attempt=1, name="a", media_type="text/plain", step=1, num_bytes=1,
                             sha256="0" * 64, content=b"x", created_at=now))  # fmt: skip
    client = team.client("viewer")

    def suggested(query: str) -> list[str]:
        items = client.get("/api/v1/search/suggestions", params={"q": query}).json()["items"]
        return [item["text"] for item in items]

    assert client.get("/api/v1/artifacts/5").status_code == 200
    assert suggested("params.both=") == ["params.both=x", "params.both=y"]
    act(team, "experiments", "delete", [gone])
    assert client.get("/api/v1/artifacts/5").status_code == 404
    assert suggested("params.secret") == []
    assert suggested("params.both=") == ["params.both=y"]
    assert suggested("params.width=") == ["params.width=32"]
    act(team, "experiments", "restore", [gone])
    assert client.get("/api/v1/artifacts/5").status_code == 200
    assert suggested("params.secret") == ["params.secret="]


def test_retention_leaves_what_is_analysed_or_was_marked_meanwhile(team: Team) -> None:
    first, second = submit(team), submit(team)
    act(team, "experiments", "cancel", [first, second])
    long_ago = datetime.now(UTC) - timedelta(days=30)
    with team.database.write() as session:
        for experiment in session.scalars(select(Experiment)):
            experiment.ended_at = long_ago
    runs = listed(team, "runs", experiment_id=first)
    made = team.client("submitter").post(f"/api/v1/runs/{runs[0]}/analyses", json={"kind": "stress", "recipe": "bf16"})
    assert made.status_code == 201, made.text
    assert delete_expired(team.database, 7) == [second]
    act(team, "runs", "cancel", [made.json()["id"]])
    assert delete_expired(team.database, 7) == [first]


def test_others_write_between_the_rows_and_an_outage_keeps_what_was_done(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [submit(team) for _ in range(3)]
    write, begun = team.database.write, list[int]()

    def failing_at_the_third() -> AbstractContextManager[Session]:
        begun.append(1)
        if len(begun) > 2:
            raise StoreUnavailable("the disk is away")
        return write()

    monkeypatch.setattr(team.database, "write", failing_at_the_third)
    told = act(team, "experiments", "cancel", ids)
    assert (told["done"], told["refused"]) == (ids[:2], [{"id": ids[2], "reason": "the disk is away"}])
    body = {"action": "cancel", "ids": ids}
    assert team.client("submitter").post("/api/v1/experiments/actions", json=body).status_code == 503


def test_a_run_deleted_before_it_could_be_locked_is_not_here(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    run = listed(team, "runs", experiment_id=submit(team))[0]

    def gone(*_: Any) -> None:
        raise NoResultFound

    monkeypatch.setattr("server.runs.control.pause_run", gone)
    monkeypatch.setattr("server.runs.service.cancel_run", gone)
    answer = team.client("submitter").post(f"/api/v1/runs/{run}/pause")
    assert (answer.status_code, "deleted a moment ago" in answer.json()["detail"]) == (404, True)
    assert "deleted a moment ago" in act(team, "runs", "cancel", [run])["refused"][0]["reason"]
