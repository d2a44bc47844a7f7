"""Notes and tags on experiments, runs, reports and workloads, over REST and on pages."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session
from team import Team

from server.db.engine import Database
from server.db.tables import Experiment, Note, ProjectMember, Run
from server.runs.delete import purge_deleted


@pytest.fixture
def team(any_database: Database, tmp_path: Path) -> Team:
    """As elsewhere, but on either database: a first note was an error on one of them."""
    team = Team(any_database, tmp_path)
    team.add_workload()
    return team


@pytest.fixture
def subjects(team: Team) -> dict[str, str]:
    """One subject of each kind."""
    client = team.client("submitter")
    made = client.post("/api/v1/experiments", json={"workload": "digits-cnn", "seeds": 1, "tags": ["first"]}).json()
    report = client.post("/api/v1/reports", json={"title": "Findings", "body": "x"}).json()
    return {"experiment": str(made["id"]), "run": str(made["runs"][0]["id"]), "report": str(report["id"]),
            "workload": "digits-cnn"}  # fmt: skip


@pytest.mark.parametrize("kind", ["experiment", "run", "report", "workload"])
def test_a_note_is_kept_and_shown(team: Team, subjects: dict[str, str], kind: str) -> None:
    address = f"/api/v1/notes/{kind}/{subjects[kind]}"
    empty = team.client("viewer").get(address).json()
    assert (empty["version"], empty["text"]) == (0, "")
    body = {"text": "Look at **step 7** <img src=x onerror=alert(1)>", "tags": ["odd", "odd", " good "], "version": 0}
    told = team.client("submitter").put(address, json=body).json()
    assert (told["version"], told["tags"], told["editor"]) == (1, ["odd", "good"], "submitter")
    pages = {"experiment": "/experiments/", "run": "/runs/", "report": "/reports/", "workload": "/workloads?"}
    shown = team.browser("viewer").get(pages[kind] + subjects[kind]).text
    assert "<strong>step 7</strong>" in shown
    assert "<img src=x" not in shown
    assert 'class="badge outline">odd</span>' in shown
    kept = team.client("submitter").put(address, json={"text": "", "version": 1}).json()
    assert (kept["text"], kept["tags"]) == ("", ["odd", "good"])  # tags that are not given stay


def test_tags_of_experiments_and_runs_are_those_of_the_lists(team: Team, subjects: dict[str, str]) -> None:
    client = team.client("submitter")
    assert client.get(f"/api/v1/notes/experiment/{subjects['experiment']}").json()["tags"] == ["first"]
    body = {"text": "t", "tags": ["second"], "version": 0}
    client.put(f"/api/v1/notes/experiment/{subjects['experiment']}", json=body)
    assert client.get(f"/api/v1/experiments/{subjects['experiment']}").json()["tags"] == ["second"]


@pytest.mark.parametrize("kind", ["experiment", "run"])
def test_tags_change_only_by_those_whose_they_are(team: Team, subjects: dict[str, str], kind: str) -> None:
    address, page = f"/api/v1/notes/{kind}/{subjects[kind]}", f"/{kind}s/{subjects[kind]}"
    assert 'name="tags"' in team.browser("submitter").get(page).text
    keep = {"text": "mine", "tags": ["keep"], "version": 0}
    assert team.client("submitter").put(address, json=keep).status_code == 200
    with team.database.write() as session:
        experiment = session.get_one(Experiment, int(subjects["experiment"]))
        experiment.owner_id, project_id = team.ids["admin"], experiment.project_id
    stranger = team.client("submitter")
    refused = stranger.put(address, json={"text": "gone", "tags": [], "version": 1})
    assert refused.status_code == 403
    assert "change the tags of" in refused.json()["detail"]
    form = {"text": "gone", "tags": "", "version": "1"}
    assert team.browser("submitter").post(f"/notes/{kind}/{subjects[kind]}", data=form).status_code == 403
    same = stranger.put(address, json={"text": "noted", "tags": ["keep"], "version": 1})
    assert (same.status_code, same.json()["text"], same.json()["tags"]) == (200, "noted", ["keep"])
    offered = team.browser("submitter").get(page).text
    assert 'name="tags"' not in offered
    assert 'name="keep_tags"' in offered
    sent = {"text": "by form", "keep_tags": "1", "version": "2"}
    assert team.browser("submitter").post(f"/notes/{kind}/{subjects[kind]}", data=sent).status_code == 303
    kept = stranger.get(address).json()
    assert (kept["text"], kept["tags"]) == ("by form", ["keep"])
    with team.database.write() as session:
        session.add(ProjectMember(project_id=project_id, user_id=team.ids["submitter"], role="admin"))
    assert 'name="tags"' in team.browser("submitter").get(page).text
    assert stranger.put(address, json={"text": "", "tags": ["x"], "version": 3}).json()["tags"] == ["x"]
    assert team.client("admin").put(address, json={"text": "", "tags": [], "version": 4}).json()["tags"] == []


def test_nobody_writes_over_a_note_unseen(team: Team, subjects: dict[str, str]) -> None:
    address = f"/api/v1/notes/report/{subjects['report']}"
    team.client("admin").put(address, json={"text": "theirs", "version": 0})
    assert team.client("submitter").put(address, json={"text": "mine", "version": 0}).status_code == 409
    form = {"text": "mine", "tags": "a, b", "version": "0"}
    answer = team.browser("submitter").post(f"/notes/report/{subjects['report']}", data=form)
    assert answer.status_code == 409
    assert all(text in answer.text for text in ("theirs", "mine", "a, b", 'name="version" value="1"'))
    saved = team.browser("submitter").post(
        f"/notes/report/{subjects['report']}", data=form | {"version": "1"}, follow_redirects=False
    )
    assert saved.headers["location"] == f"/reports/{subjects['report']}#notes"
    listed = team.browser("viewer").get("/reports?tag=a").text
    assert "Findings" in listed
    assert "Findings" not in team.browser("viewer").get("/reports?tag=other").text


def test_of_two_first_notes_at_once_one_is_refused(
    team: Team, subjects: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, start, answers = f"/api/v1/notes/report/{subjects['report']}", threading.Barrier(2), list[int]()

    def both_have_read(session: Session) -> datetime:
        if not team.database.is_sqlite:  # whose writers are alone
            start.wait(20)
        return datetime.now(UTC)

    def put(text: str) -> None:
        body = {"text": text, "tags": [text], "version": 0}
        answers.append(team.client("submitter").put(address, json=body).status_code)

    monkeypatch.setattr("server.notes.service.store_now", both_have_read)
    threads = [threading.Thread(target=put, args=(text,)) for text in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 409]
    kept = team.client("viewer").get(address).json()
    assert (kept["version"], kept["tags"]) == (1, [kept["text"]])


@pytest.mark.parametrize(
    ("path", "status"),
    [("run/999", 404), ("run/abc", 404), ("run/007", 404), ("workload/none", 404), ("worker/1", 422)],
)
def test_what_is_not_here_has_no_note(team: Team, path: str, status: int) -> None:
    assert team.client("viewer").get(f"/api/v1/notes/{path}").status_code == status


def test_too_much_is_refused(team: Team, subjects: dict[str, str]) -> None:
    address = f"/api/v1/notes/run/{subjects['run']}"
    client = team.client("submitter")
    assert client.put(address, json={"text": "x" * 20_001, "version": 0}).status_code == 422
    tags = [str(number) for number in range(21)]
    assert client.put(address, json={"text": "", "tags": tags, "version": 0}).status_code == 422
    form = {"text": "", "tags": "y" * 41, "version": "0"}
    assert team.browser("submitter").post(f"/notes/run/{subjects['run']}", data=form).status_code == 422


@pytest.mark.parametrize(
    ("text", "tag"), [("t", "a\0b"), ("t", "a\x1b[31mb"), ("t", "a\nb"), ("t", "a\tb"), ("t\0", "a"), ("t\x1b", "a")]
)
def test_characters_that_cannot_be_shown_are_refused_by_form_and_rest(
    team: Team, subjects: dict[str, str], text: str, tag: str
) -> None:
    address = f"/api/v1/notes/experiment/{subjects['experiment']}"
    body = {"text": text, "tags": [tag], "version": 0}
    assert team.client("submitter").put(address, json=body).status_code == 422
    form = {"text": text, "tags": f"{tag}, good", "version": "0"}
    page = team.browser("submitter").post(f"/notes/experiment/{subjects['experiment']}", data=form)
    assert page.status_code == 422
    assert "It was not saved" in page.text
    kept = team.client("viewer").get(address).json()
    assert (kept["version"], kept["tags"]) == (0, ["first"])
    lines = {"text": "one\r\n\ttwo", "tags": "", "version": "0"}
    assert team.browser("submitter").post(f"/notes/experiment/{subjects['experiment']}", data=lines).status_code == 303
    assert team.client("viewer").get(address).json()["text"] == "one\n\ttwo"


def test_notes_go_with_what_they_are_about(team: Team, subjects: dict[str, str]) -> None:
    client = team.client("submitter")
    for kind in ("experiment", "run", "report"):
        client.put(f"/api/v1/notes/{kind}/{subjects[kind]}", json={"text": "t", "version": 0})
    client.post(f"/api/v1/experiments/{subjects['experiment']}/cancel")
    assert client.delete(f"/api/v1/experiments/{subjects['experiment']}").status_code == 204
    assert client.delete(f"/api/v1/reports/{subjects['report']}").status_code == 204
    assert purge_deleted(team.database, -1) == 1
    with team.database.read() as session:
        assert session.scalars(select(Note)).all() == []
        assert session.scalars(select(Run)).all() == []
