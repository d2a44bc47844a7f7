"""Roles in a project: who may submit to it, and who may act on whose work in it."""

from __future__ import annotations

import pytest
from team import Team

from server.accounts import service as accounts
from server.db.tables import ProjectMember


def submitted(team: Team, role: str, project: str = "vision") -> int:
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 1, "project": project}
    answer = team.client(role).post("/api/v1/experiments", json=body)
    return int(answer.json()["id"]) if answer.status_code == 201 else -answer.status_code


@pytest.fixture
def colleague(team: Team) -> Team:
    """A second submitter."""
    with team.database.write() as session:
        user = accounts.create_user(session, "colleague", "submitter")
        team.ids["colleague"] = user.id
        _, team.tokens["colleague"] = accounts.create_token(session, user, "test")
    return team


def set_member(team: Team, user: str, role: str | None, project_id: int = 1) -> int:
    path = f"/api/v1/projects/{project_id}/members"
    return team.client("admin").put(path, json={"user": user, "role": role}).status_code


# Role in the project of (the owner, the one who acts) → may they submit, may they cancel the owner's experiment?
MATRIX = [
    ({}, "colleague", 201, 403),
    ({"submitter": "submitter"}, "colleague", 403, 403),
    ({"colleague": "submitter"}, "colleague", 201, 403),
    ({"colleague": "admin"}, "colleague", 201, 200),
    ({"submitter": "submitter"}, "admin", 201, 200),
    ({"viewer": "admin"}, "viewer", 403, 403),
    ({"colleague": "submitter"}, "submitter", 403, 200),  # closed to the owner: their own work stays theirs
]


@pytest.mark.parametrize(("members", "who", "submits", "cancels"), MATRIX)
def test_the_matrix(colleague: Team, members: dict[str, str], who: str, submits: int, cancels: int) -> None:
    experiment = submitted(colleague, "submitter")
    for user, role in members.items():
        assert set_member(colleague, user, role) == 200
    client = colleague.client(who)
    body = {"workload": "digits-cnn", "recipes": ["fp32", "bf16"], "seeds": 1, "project": "vision"}
    assert client.post("/api/v1/experiments", json=body).status_code == submits
    assert client.get(f"/api/v1/experiments/{experiment}").status_code == 200, "everybody reads"
    assert client.post(f"/api/v1/experiments/{experiment}/cancel").status_code == cancels


def test_a_closed_project_is_closed_to_reports_and_tracked_runs(colleague: Team) -> None:
    submitted(colleague, "submitter")
    report = colleague.client("colleague").post("/api/v1/reports", json={"title": "t", "project": "vision"})
    assert report.status_code == 201
    assert set_member(colleague, "submitter", "submitter") == 200
    client = colleague.client("colleague")
    refused = client.post("/api/v1/reports", json={"title": "t", "project": "vision"})
    assert refused.status_code == 403
    assert "is closed to colleague" in refused.json()["detail"]
    path = f"/api/v1/reports/{report.json()['id']}"
    assert client.put(path, json={"title": "t", "body": "", "version": 1}).status_code == 403
    assert client.post("/api/v1/reports", json={"title": "t", "project": "elsewhere"}).status_code == 201


def test_taking_the_last_member_opens_the_project_again(colleague: Team) -> None:
    submitted(colleague, "submitter")
    assert set_member(colleague, "submitter", "submitter") == 200
    assert submitted(colleague, "colleague") == -403
    assert set_member(colleague, "submitter", None) == 200
    assert submitted(colleague, "colleague") > 0
    with colleague.database.read() as session:
        assert session.query(ProjectMember).count() == 0


@pytest.mark.parametrize(
    ("user", "role", "status"), [("nobody", "submitter", 422), ("submitter", "viewer", 422), ("submitter", "x", 422)]
)
def test_wrong_members_are_refused(team: Team, user: str, role: str, status: int) -> None:
    submitted(team, "submitter")
    assert set_member(team, user, role) == status
    assert set_member(team, "submitter", "admin", project_id=4711) == 404


def test_the_team_page_tells_people_projects_and_activity_but_no_secrets(team: Team) -> None:
    experiment = submitted(team, "submitter")
    set_member(team, "submitter", "admin")
    seen = team.browser("viewer").get("/team").text
    assert "vision" in seen
    assert f'href="/experiments/{experiment}"' in seen
    assert "submitted" in seen
    assert "token create" not in seen
    assert "Remove" not in seen
    assert "Remove" in team.browser("admin").get("/team").text
    trail = team.browser("admin").get("/audit", params={"action": "project.member"}).text
    assert "role admin" in trail
    assert team.browser("submitter").get("/audit").status_code == 403
    moved = team.browser("admin").post("/team/projects/1/members", data={"user": "submitter", "role": ""})
    assert moved.status_code == 303
