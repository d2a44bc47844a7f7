"""Views: one's own and the team's, by page; what is kept of an address."""

from __future__ import annotations

from pathlib import Path

import pytest
from team import Team

from server.db.engine import Database
from server.views.service import MAX_VIEWS, kept_query

URL = "/api/v1/views"


@pytest.fixture
def team(database: Database, tmp_path: Path) -> Team:
    return Team(database, tmp_path)


def test_a_view_is_saved_replaced_shared_and_deleted(team: Team) -> None:
    submitter, viewer, admin = (team.client(role) for role in ("submitter", "viewer", "admin"))
    body = {"page": "runs", "name": " Failed ", "query": "?q=status%3Afailed&cursor=abc&sort="}
    made = submitter.post(URL, json=body).json()
    assert (made["name"], made["query"], made["url"]) == ("Failed", "q=status%3Afailed", "/runs?q=status%3Afailed")
    assert viewer.get(URL).json()["items"] == []
    shared = submitter.post(URL, json=body | {"shared": True}).json()
    assert shared["id"] == made["id"]
    seen = viewer.get(URL, params={"page": "runs"}).json()["items"]
    assert [(view["name"], view["mine"], view["owner"]) for view in seen] == [("Failed", False, "submitter")]
    assert viewer.get(URL, params={"page": "experiments"}).json()["items"] == []
    assert viewer.delete(f"{URL}/{made['id']}").status_code == 403
    assert admin.delete(f"{URL}/{made['id']}").status_code == 204
    assert submitter.delete(f"{URL}/{made['id']}").status_code == 404


def test_viewers_save_for_themselves_only(team: Team) -> None:
    viewer = team.client("viewer")
    body = {"page": "experiments", "name": "mine", "query": "state=running"}
    assert viewer.post(URL, json=body | {"shared": True}).status_code == 403
    made = viewer.post(URL, json=body)
    assert made.status_code == 201
    assert team.client("admin").delete(f"{URL}/{made.json()['id']}").status_code == 404, "nobody sees another's own"
    assert viewer.post(URL, json=body | {"page": "people"}).status_code == 422
    assert viewer.post(URL, json=body | {"name": "  "}).status_code == 422


def test_one_person_saves_so_many(team: Team) -> None:
    client = team.client("submitter")
    for number in range(MAX_VIEWS):
        assert client.post(URL, json={"page": "runs", "name": f"v{number}"}).status_code == 201
    refused = client.post(URL, json={"page": "runs", "name": "one more"})
    assert (refused.status_code, "delete one first" in refused.text) == (422, True)


def test_a_query_keeps_the_view_and_no_message() -> None:
    assert kept_query("?group=recipe&did=delete&ids=1,2&q=a+b&cursor=x&state=") == "group=recipe&q=a+b"
