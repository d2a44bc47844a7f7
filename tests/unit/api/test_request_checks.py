"""Host, origin, body size and headers: what stands before every route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from team import BASE_URL, Team

from server.access.middleware import host_name
from server.db.engine import Database


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8420", "localhost", "localhost:9999", "[::1]:8420", "LOCALHOST", "board.example.org"],
)
def test_our_own_names_are_served(database: Database, tmp_path: Path, host: str) -> None:
    team = Team(database, tmp_path, allowed_hosts=["board.example.org"])
    assert team.client().get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example:8420",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "",
        "[::1",
        "xlocalhost",
        "127.1",
        "2130706433",
        "0.0.0.0",
        "localhost\\.evil",
    ],
)
def test_other_names_are_refused(team: Team, host: str) -> None:
    response = team.client("admin").get("/api/v1/me", headers={"Host": host})
    assert response.status_code == 421
    assert "AMPBOARD_ALLOWED_HOSTS" in response.json()["detail"]


def test_two_host_headers_are_refused(team: Team) -> None:
    request = team.client("admin").build_request("GET", "/healthz")
    request.headers.update({"Host": "127.0.0.1"})
    raw = [*request.headers.raw, (b"host", b"evil.example")]
    response = team.client().send(type(request)("GET", request.url, headers=raw))
    assert response.status_code == 421


def test_host_name_takes_the_port_off() -> None:
    assert host_name("[::1]:80") == "::1"
    assert host_name("Example.ORG:80") == "example.org"
    assert host_name("[bad") == ""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": BASE_URL}, 201),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "same-origin", "Origin": BASE_URL}, 201),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "https://127.0.0.1.evil.example:8420"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": BASE_URL}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({}, 403),
    ],
)
def test_a_session_changes_things_only_from_our_own_pages(team: Team, headers: dict[str, str], status: int) -> None:
    browser = team.browser("submitter")
    del browser.headers["Origin"]
    response = browser.post("/api/v1/tokens", json={"name": "t"}, headers=headers)
    assert response.status_code == status


def test_a_session_reads_from_anywhere_it_is_sent(team: Team) -> None:
    browser = team.browser("viewer")
    assert browser.get("/api/v1/me", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_no_answer_can_be_read_by_another_site(team: Team) -> None:
    response = team.client("viewer").get("/api/v1/me", headers={"Origin": "http://evil.example"})
    assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("role", "path"), [(None, "/healthz"), (None, "/api/v1/me"), ("admin", "/nowhere"), ("admin", "/api/v1/me")]
)
def test_every_answer_carries_the_security_headers(team: Team, role: str | None, path: str) -> None:
    headers = team.client(role).get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe-eval" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_a_body_declared_too_large_is_refused_unread(team: Team) -> None:
    headers = {"Content-Length": str(team.settings.max_body_bytes + 1), "Content-Type": "application/json"}
    response = team.client("submitter").post("/api/v1/experiments", content=b"{}", headers=headers)
    assert response.status_code == 413
    assert response.json()["type"] == "urn:ampboard:problem:too-large"
    assert "AMPBOARD_MAX_BODY_BYTES" in response.json()["detail"]


@pytest.mark.parametrize(
    ("path", "content_type"),
    [("/api/v1/experiments", "application/json"), ("/signin", "application/x-www-form-urlencoded")],
)
def test_a_body_that_streams_on_is_cut(database: Database, tmp_path: Path, path: str, content_type: str) -> None:
    team = Team(database, tmp_path, max_body_bytes=10_000)
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 1000
            yield b"a" * 1000

    response = team.client("submitter").post(path, content=endless(), headers={"Content-Type": content_type})
    assert response.status_code == 413
    assert response.json()["status"] == 413


def test_a_body_at_the_limit_is_read(database: Database, tmp_path: Path) -> None:
    team = Team(database, tmp_path, max_body_bytes=2048)
    body = b'{"workload": "' + b"x" * (2048 - 16) + b'"}'
    headers = {"Content-Type": "application/json"}
    assert team.client("submitter").post("/api/v1/experiments", content=body, headers=headers).status_code == 422


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        ({"Host": "evil.example"}, 421, "not a name of this server"),
        ({"Origin": "http://evil.example"}, 403, "another site"),
        ({"Content-Length": "99999999"}, 413, "are accepted"),
    ],
)
def test_browsers_see_pages_when_they_are_refused(team: Team, headers: dict[str, str], status: int, words: str) -> None:
    response = team.browser("submitter").post("/signout", data={}, headers=headers)
    assert response.status_code == status
    assert response.headers["content-type"].startswith("text/html")
    assert words in response.text
    assert "content-security-policy" in response.headers


def test_an_encoded_question_mark_makes_no_path_public(team: Team) -> None:
    client = team.client()
    for path in ("/healthz%3F", "/signin%3Fx", "/healthz%23", "/healthz%00"):
        assert client.get(path).status_code == 401, path
