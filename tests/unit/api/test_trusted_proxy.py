"""Single sign-on in front: the person is taken from the proxy's header, and from nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError
from team import BASE_URL, Team

from server.access.cookies import SESSION_COOKIE
from server.accounts.service import get_user
from server.db.engine import Database
from server.settings import Settings

HEADER = "X-Forwarded-User"
PROXY = ("10.0.0.5", 4711)


@pytest.fixture
def team(database: Database, tmp_path: Path) -> Team:
    return Team(database, tmp_path, trusted_proxy="10.0.0.5/32,fd00::/64", trusted_proxy_header=HEADER)


def client(team: Team, address: tuple[str, int] = PROXY, **headers: str) -> TestClient:
    return TestClient(team.app, base_url=BASE_URL, client=address, headers=headers, follow_redirects=False)


@pytest.mark.parametrize("address", ["10.0.0.5", "fd00::17", "::ffff:10.0.0.5"])
def test_the_proxy_names_the_person(team: Team, address: str) -> None:
    answer = client(team, (address, 1), **{HEADER: "submitter"}).get("/api/v1/me")
    assert answer.status_code == 200
    assert (answer.json()["name"], answer.json()["role"], answer.json()["via"]) == ("submitter", "submitter", "proxy")


@pytest.mark.parametrize("address", ["10.0.0.6", "127.0.0.1", "fd01::1", "testclient", ""])
@pytest.mark.parametrize("path", ["/api/v1/me", "/signin", "/healthz"])
def test_nobody_else_may_name_anybody(team: Team, address: str, path: str) -> None:
    answer = client(team, (address, 1), **{HEADER: "admin"}).get(path)
    assert answer.status_code == 401
    assert "AMPBOARD_TRUSTED_PROXY" in answer.json()["detail"]


def test_an_address_that_is_only_claimed_is_no_address(team: Team) -> None:
    claimed = {HEADER: "admin", "X-Forwarded-For": "10.0.0.5", "Forwarded": "for=10.0.0.5"}
    assert client(team, ("10.0.0.6", 1), **claimed).get("/api/v1/me").status_code == 401


def test_two_names_are_none(team: Team) -> None:
    proxy = client(team)
    request = proxy.build_request("GET", "/api/v1/me")
    raw = [*request.headers.raw, (HEADER.lower().encode(), b"viewer"), (HEADER.encode(), b"admin")]
    answer = proxy.send(type(request)("GET", request.url, headers=raw))
    assert answer.status_code == 401
    assert "more than one" in answer.json()["detail"]


def test_unknown_and_disabled_people_are_told_so(team: Team) -> None:
    answer = client(team, **{HEADER: "stranger"}).get("/api/v1/me")
    assert answer.status_code == 401
    assert "ampboard user create" in answer.json()["detail"]
    assert client(team, **{HEADER: ""}).get("/api/v1/me").status_code == 401
    team.client("admin").patch(f"/api/v1/users/{team.ids['viewer']}", json={"disabled": True})
    assert client(team, **{HEADER: "viewer"}).get("/api/v1/me").status_code == 401


def test_a_role_is_the_accounts_and_a_token_goes_before(team: Team) -> None:
    assert client(team, **{HEADER: "viewer"}).get("/api/v1/users").status_code == 403
    both = {HEADER: "viewer", "Authorization": f"Bearer {team.tokens['admin']}"}
    assert client(team, **both).get("/api/v1/me").json()["name"] == "admin"


def test_another_site_cannot_use_the_proxys_word(team: Team) -> None:
    """Browsers are signed in at the proxy by a cookie of its own, which a foreign page makes them send."""
    body = {"name": "mine", "role": "viewer"}
    for headers in ({}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = client(team, **{HEADER: "submitter"}, **headers).post("/api/v1/tokens", json=body)
        assert answer.status_code == 403, headers
    own = client(team, **{HEADER: "submitter"}, Origin=BASE_URL)
    assert own.post("/api/v1/tokens", json=body).status_code == 201


def test_without_the_header_the_proxys_visitors_sign_in_as_others(team: Team) -> None:
    browser = team.browser("viewer")
    assert browser.get("/api/v1/me").json()["via"] == "session"
    assert client(team).get("/api/v1/me").status_code == 401
    with team.database.read() as session:
        assert get_user(session, team.ids["viewer"]).name == "viewer"
    assert SESSION_COOKIE in browser.cookies


def test_a_header_means_nothing_unless_it_is_configured(database: Database, tmp_path: Path) -> None:
    plain = Team(database, tmp_path)
    assert client(plain, ("127.0.0.1", 1), **{HEADER: "admin"}).get("/api/v1/me").status_code == 401


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trusted_proxy": "10.0.0.5"}, "go together"),
        ({"trusted_proxy_header": HEADER}, "go together"),
        ({"trusted_proxy": "0.0.0.0/0", "trusted_proxy_header": HEADER}, "every address"),
        ({"trusted_proxy": "::/0", "trusted_proxy_header": HEADER}, "every address"),
        ({"trusted_proxy": "proxy.example", "trusted_proxy_header": HEADER}, "does not appear to be"),
        ({"trusted_proxy": "10.0.0.5", "trusted_proxy_header": "no header:"}, "pattern"),
    ],
)
def test_settings_that_trust_too_much_or_too_little_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings(**given)
