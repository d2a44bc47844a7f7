"""Links, passwords, sessions."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import select, update
from team import Team

from server.access.cookies import SESSION_COOKIE
from server.accounts import service
from server.accounts.signin import safe_target
from server.accounts.throttle import Throttle
from server.db.tables import Session, SignInLink, User
from server.errors import Conflict, Invalid, TooManyRequests, Unauthenticated

PASSWORD = "correct horse battery"


def _link(team: Team, role: str = "viewer") -> str:
    with team.database.write() as session:
        return service.create_sign_in_link(session, service.get_user(session, team.ids[role]))


def test_a_link_signs_in_once(team: Team) -> None:
    secret, browser = _link(team), team.browser()
    response = browser.post("/signin", data={"token": secret, "next": "/experiments/3?view=a"})
    assert (response.status_code, response.headers["location"]) == (303, "/experiments/3?view=a")
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie
    assert browser.get("/api/v1/me").json()["name"] == "viewer"
    assert team.browser().post("/signin", data={"token": secret}).status_code == 401


def test_over_https_the_cookie_is_secure(team: Team) -> None:
    browser = team.browser()
    browser.base_url = "https://127.0.0.1:8420"
    browser.headers["Origin"] = "https://127.0.0.1:8420"
    assert "Secure" in browser.post("/signin", data={"token": _link(team)}).headers["set-cookie"]


def test_opening_a_link_does_not_use_it_up(team: Team) -> None:
    secret = _link(team)
    team.browser().get("/signin", params={"token": secret})
    team.browser().head("/signin", params={"token": secret})
    assert team.browser().post("/signin", data={"token": secret}).status_code == 303


def test_of_many_at_the_same_moment_one_wins(team: Team) -> None:
    secret, start, outcomes = _link(team), threading.Barrier(8), []

    def attempt() -> None:
        start.wait()
        try:
            with team.database.write() as session:
                service.consume_sign_in_link(session, secret)
            outcomes.append("in")
        except Unauthenticated:
            outcomes.append("refused")

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["in"] + ["refused"] * 7


def test_an_old_link_is_refused(team: Team) -> None:
    secret = _link(team)
    with team.database.write() as session:
        session.execute(update(SignInLink).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    response = team.client().post("/signin", data={"token": secret})
    assert response.status_code == 401
    assert "ampboard user link" in response.json()["detail"]


def test_secrets_are_stored_as_hashes_only(team: Team) -> None:
    secret, browser = _link(team), team.browser()
    with team.database.read() as session:
        assert secret not in session.scalars(select(SignInLink.token_hash)).all()
    browser.post("/signin", data={"token": secret})
    with team.database.read() as session:
        assert browser.cookies[SESSION_COOKIE] not in session.scalars(select(Session.token_hash)).all()


def test_the_first_link_makes_the_first_admin_and_no_second(team: Team) -> None:
    with team.database.write() as session:
        service.first_sign_in_link(session)
        assert len(session.scalars(select(User).where(User.role == "admin")).all()) == 1


@pytest.mark.parametrize(
    ("target", "settled"),
    [
        ("/experiments?q=a#b", "/experiments?q=a#b"),
        ("https://evil.example/", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("evil.example", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("/\t/evil.example", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_nowhere_else(target: str, settled: str) -> None:
    assert safe_target(target) == settled


def test_a_stranger_in_a_browser_is_led_to_the_sign_in_page_and_back(team: Team) -> None:
    response = team.browser().get("/experiments/3?view=a&b=c")
    assert response.status_code == 303
    parts = urlsplit(response.headers["location"])
    assert parts.path == "/signin"
    assert parse_qs(parts.query) == {"next": ["/experiments/3?view=a&b=c"]}


def test_signing_out_ends_the_session_on_the_server(team: Team) -> None:
    browser = team.browser("viewer")
    stolen = browser.cookies[SESSION_COOKIE]
    assert browser.post("/signout").status_code == 303
    thief = team.browser()
    thief.cookies.set(SESSION_COOKIE, stolen)
    assert thief.get("/api/v1/me").status_code == 401


def test_an_expired_session_is_over(team: Team) -> None:
    browser = team.browser("viewer")
    with team.database.write() as session:
        session.execute(update(Session).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    assert browser.get("/api/v1/me").status_code == 401


def test_disabled_people_are_out_at_once_and_stay_out(team: Team) -> None:
    browser, client, admin, secret = team.browser("viewer"), team.client("viewer"), team.client("admin"), _link(team)
    assert browser.get("/api/v1/me").status_code == client.get("/api/v1/me").status_code == 200
    path = f"/api/v1/users/{team.ids['viewer']}"
    assert admin.patch(path, json={"disabled": True}).status_code == 200
    assert browser.get("/api/v1/me").status_code == client.get("/api/v1/me").status_code == 401
    assert team.browser().post("/signin", data={"token": secret}).status_code == 401
    assert admin.post(f"{path}/sign-in-link").status_code == 409
    assert admin.patch(path, json={"disabled": False}).status_code == 200
    assert browser.get("/api/v1/me").status_code == 401, "the old session stays closed"
    assert client.get("/api/v1/me").status_code == 200


def test_a_changed_role_counts_at_once(team: Team) -> None:
    browser = team.browser("submitter")
    team.client("admin").patch(f"/api/v1/users/{team.ids['submitter']}", json={"role": "viewer"})
    assert browser.post("/api/v1/experiments", json={"workload": "digits-cnn"}).status_code == 403


def test_the_last_admin_stays(team: Team) -> None:
    admin, path = team.client("admin"), f"/api/v1/users/{team.ids['admin']}"
    assert admin.patch(path, json={"role": "viewer"}).status_code == 409
    assert admin.patch(path, json={"disabled": True}).status_code == 409
    assert admin.post("/api/v1/users", json={"name": "second", "role": "admin"}).status_code == 201
    assert admin.patch(path, json={"role": "viewer"}).status_code == 200


def test_a_password_signs_in_and_changing_it_ends_other_sessions(team: Team) -> None:
    browser, other = team.browser("viewer"), team.browser("viewer")
    assert browser.put("/api/v1/me/password", json={"password": PASSWORD}).status_code == 204
    assert other.get("/api/v1/me").status_code == 401
    form = {"name": "viewer", "password": PASSWORD}
    signed_in = team.browser()
    assert signed_in.post("/signin", data=form).status_code == 303
    refused = signed_in.put("/api/v1/me/password", json={"password": "another one 1", "current_password": "wrong"})
    assert refused.status_code == 403
    body = {"password": "another one 1", "current_password": PASSWORD}
    assert signed_in.put("/api/v1/me/password", json=body).status_code == 204
    assert team.browser().post("/signin", data=form).status_code == 401


def test_a_token_cannot_set_a_password(team: Team) -> None:
    assert team.client("admin").put("/api/v1/me/password", json={"password": PASSWORD}).status_code == 403


def test_unknown_name_wrong_password_and_no_password_look_alike(team: Team) -> None:
    with team.database.write() as session:
        service.set_password(session, service.get_user(session, team.ids["viewer"]), PASSWORD)
    answers = {
        team.client().post("/signin", data={"name": name, "password": "x" * 12}).text
        for name in ("nobody", "viewer", "submitter")
    }
    assert len(answers) == 1
    assert "do not match" in answers.pop()


def test_guessing_is_slowed_down(team: Team) -> None:
    team.app.state.throttle = Throttle(max_failures=3, window_s=60.0)
    for _ in range(3):
        assert team.client().post("/signin", data={"name": "viewer", "password": "x"}).status_code == 401
    assert team.client().post("/signin", data={"name": "viewer", "password": "x"}).status_code == 429
    assert team.client().post("/signin", data={"name": "other", "password": "x"}).status_code == 401


def test_the_throttle_forgets() -> None:
    throttle = Throttle(max_failures=1, window_s=0.05)
    throttle.failed("a")
    with pytest.raises(TooManyRequests, match="wait 0 s"):
        throttle.check("a")
    threading.Event().wait(0.06)
    throttle.check("a")


def test_short_passwords_and_odd_names_are_refused_without_echoing_the_password(team: Team) -> None:
    admin = team.client("admin")
    response = admin.post("/api/v1/users", json={"name": "new", "password": "short1"})
    assert response.status_code == 422
    assert "10 to 200" in response.text
    assert "short1" not in response.text
    for name in ("", "<b>", " lead", "a\nb", "x" * 81):
        assert admin.post("/api/v1/users", json={"name": name}).status_code == 422
    assert admin.post("/api/v1/users", json={"name": "VIEWER"}).status_code == 409


def test_service_faults_name_the_rule(team: Team) -> None:
    with team.database.write() as session:
        with pytest.raises(Invalid, match="a role is one of viewer, submitter, admin"):
            service.create_user(session, "x", "root")
        with pytest.raises(Conflict, match="is taken"):
            service.create_user(session, "viewer", "viewer")
