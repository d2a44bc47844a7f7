"""API tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update
from team import BASE_URL, Team

from server.access.principal import lower_role
from server.db.tables import Token


def _with(team: Team, secret: str) -> TestClient:
    return TestClient(team.app, base_url=BASE_URL, headers={"Authorization": f"Bearer {secret}"})


def test_the_secret_is_shown_once_and_stored_as_a_hash(team: Team) -> None:
    client = team.client("submitter")
    made = client.post("/api/v1/tokens", json={"name": "ci"})
    assert made.status_code == 201
    secret = made.json()["token"]
    assert secret.startswith("amp_")
    assert secret.startswith(made.json()["prefix"])
    assert secret not in client.get("/api/v1/tokens").text
    with team.database.read() as session:
        assert all(secret not in (row.token_hash, row.prefix) for row in session.scalars(select(Token)))
    assert _with(team, secret).get("/api/v1/me").json() == {
        "id": team.ids["submitter"], "name": "submitter", "role": "submitter", "via": "token",
    }  # fmt: skip


def test_a_token_caps_its_owner(team: Team) -> None:
    secret = team.client("admin").post("/api/v1/tokens", json={"name": "read", "role": "viewer"}).json()["token"]
    reader = _with(team, secret)
    assert reader.get("/api/v1/me").json()["role"] == "viewer"
    assert reader.get("/api/v1/users").status_code == 403
    assert reader.post("/api/v1/experiments", json={"workload": "digits-cnn"}).status_code == 403


def test_a_token_cannot_make_a_stronger_one(team: Team) -> None:
    secret = team.client("admin").post("/api/v1/tokens", json={"name": "read", "role": "viewer"}).json()["token"]
    assert _with(team, secret).post("/api/v1/tokens", json={"name": "up", "role": "admin"}).status_code == 403
    made = _with(team, secret).post("/api/v1/tokens", json={"name": "same"})
    assert made.json()["role"] == "viewer"
    assert team.client("viewer").post("/api/v1/tokens", json={"name": "up", "role": "submitter"}).status_code == 403


def test_a_strong_token_of_a_demoted_owner_is_weak(team: Team) -> None:
    team.client("admin").patch(f"/api/v1/users/{team.ids['submitter']}", json={"role": "viewer"})
    assert team.client("submitter").get("/api/v1/me").json()["role"] == "viewer"


def test_a_revoked_token_is_out_at_once(team: Team) -> None:
    client = team.client("submitter")
    made = client.post("/api/v1/tokens", json={"name": "ci"}).json()
    other = _with(team, made["token"])
    assert other.get("/api/v1/me").status_code == 200
    assert client.delete(f"/api/v1/tokens/{made['id']}").status_code == 204
    refused = other.get("/api/v1/me")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert "revoked" in refused.json()["detail"]


def test_people_see_and_end_only_their_own(team: Team) -> None:
    made = team.client("admin").post("/api/v1/tokens", json={"name": "boss"}).json()
    assert {item["owner"] for item in team.client("viewer").get("/api/v1/tokens").json()["items"]} == {"viewer"}
    assert team.client("viewer").delete(f"/api/v1/tokens/{made['id']}").status_code == 404
    assert {item["owner"] for item in team.client("admin").get("/api/v1/tokens").json()["items"]} == {
        "viewer", "submitter", "admin",
    }  # fmt: skip


@pytest.mark.parametrize("value", ["Bearer", "Bearer ", "Basic YTpi", "amp_x", "Bearer \u00ff"])
def test_malformed_authorization_is_refused_even_beside_a_session(team: Team, value: str) -> None:
    browser = team.browser("admin")
    assert browser.get("/api/v1/me", headers={"Authorization": value.encode("latin-1")}).status_code in (303, 401)


def test_last_use_is_noted_about_once_a_minute(team: Team) -> None:
    client = team.client("viewer")
    client.get("/api/v1/me")
    with team.database.read() as session:
        first = session.scalars(select(Token.last_used_at).where(Token.user_id == team.ids["viewer"])).one()
    client.get("/api/v1/me")
    with team.database.write() as session:
        assert session.scalars(select(Token.last_used_at).where(Token.user_id == team.ids["viewer"])).one() == first
        session.execute(update(Token).values(last_used_at=datetime.now(UTC) - timedelta(minutes=2)))
    client.get("/api/v1/me")
    with team.database.read() as session:
        assert session.scalars(select(Token.last_used_at).where(Token.user_id == team.ids["viewer"])).one() >= first


def test_what_people_do_is_in_the_audit_trail(team: Team) -> None:
    made = team.client("submitter").post("/api/v1/tokens", json={"name": "ci"}).json()
    team.client("submitter").delete(f"/api/v1/tokens/{made['id']}")
    team.client("admin").post("/api/v1/users", json={"name": "new"})
    items = team.client("admin").get("/api/v1/audit").json()["items"]
    assert [(item["user"], item["action"]) for item in items[:3]] == [
        ("admin", "user.create"), ("submitter", "token.revoke"), ("submitter", "token.create"),
    ]  # fmt: skip
    assert made["token"] not in team.client("admin").get("/api/v1/audit").text


def test_the_audit_trail_pages(team: Team) -> None:
    admin, seen, cursor = team.client("admin"), [], None
    while True:
        page = admin.get("/api/v1/audit", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == len(set(seen)) >= 6


def test_the_weaker_role_wins() -> None:
    assert lower_role("admin", "viewer") == lower_role("viewer", "admin") == "viewer"
    assert lower_role("submitter", "nonsense") == "viewer"
