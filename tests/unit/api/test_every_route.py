"""Every route × method refuses the wrong caller. Nothing here trusts what a route says about itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from team import BASE_URL, ROLES, Team

from server.access import undeclared_routes
from server.access.dependencies import refuse_undeclared, routes_of
from server.access.public import PUBLIC, is_public
from server.db.engine import Database
from server.errors import install_handlers
from server.routers import ROUTERS

UNSAFE = {"POST", "PUT", "PATCH", "DELETE"}

# What a viewer may change: their own account, and looking at a submission's size is no change.
OWN_ACCOUNT = {
    ("PUT", "/api/v1/me/password"),
    ("POST", "/api/v1/tokens"),
    ("DELETE", "/api/v1/tokens/{token_id}"),
    ("POST", "/signout"),
    ("POST", "/account/tokens"),
    ("POST", "/account/tokens/{token_id}/revoke"),
    ("POST", "/theme"),
    ("POST", "/api/v1/views"),
    ("DELETE", "/api/v1/views/{view_id}"),
    ("POST", "/views"),
    ("POST", "/views/{view_id}/delete"),
    ("POST", "/api/v1/notifications/read"),
    ("POST", "/api/v1/notifications/{notification_id}/read"),
    ("PUT", "/api/v1/notification-choices"),
    ("POST", "/notifications/read"),
    ("POST", "/notifications/{notification_id}/open"),
    ("POST", "/notifications/choices"),
}
ADMIN_ONLY = {
    ("POST", "/api/v1/workers/{worker_id}/drain"),
    ("POST", "/api/v1/workers/{worker_id}/undrain"),
    ("POST", "/workers/{worker_id}/drain"),
    ("POST", "/workers/{worker_id}/undrain"),
    ("GET", "/api/v1/users"),
    ("POST", "/api/v1/users"),
    ("PATCH", "/api/v1/users/{user_id}"),
    ("POST", "/api/v1/users/{user_id}/sign-in-link"),
    ("GET", "/api/v1/audit"),
    ("PATCH", "/api/v1/projects/{project_id}"),
    ("PUT", "/api/v1/projects/{project_id}/members"),
    ("POST", "/team/projects/{project_id}/members"),
    ("GET", "/audit"),
}


@pytest.fixture(scope="module")
def team(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """One team for the whole module: a refused request changes nothing."""
    folder = tmp_path_factory.mktemp("routes")
    shutil.copyfile(sqlite_template, folder / "ampboard.sqlite3")
    database = Database(f"sqlite:///{folder / 'ampboard.sqlite3'}")
    yield Team(database, folder)
    database.dispose()


def _application() -> FastAPI:
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    for router in ROUTERS:
        app.include_router(router)
    return app


ROUTES = sorted({(method, path) for method, path, _ in routes_of(_application()) if method not in ("*", "HEAD")})
PRIVATE = [route for route in ROUTES if not is_public(*route)]


def _send(client: TestClient, method: str, path: str) -> int:
    url = re.sub(r"\{[^}]*\}", "1", path)
    body = {"json": {}} if method in UNSAFE else {}
    return client.request(method, url, **body).status_code


def _needed(method: str, path: str) -> str:
    """The role the policy asks for, told from method and path alone."""
    if (method, path) in ADMIN_ONLY:
        return "admin"
    if method in UNSAFE and (method, path) not in OWN_ACCOUNT:
        return "submitter"
    return "viewer"


def test_the_application_has_routes_and_the_policy_names_only_real_ones() -> None:
    assert len(ROUTES) > 25
    assert set(ROUTES) >= OWN_ACCOUNT | ADMIN_ONLY


def test_the_public_list_is_short_and_known() -> None:
    assert set(PUBLIC) == {
        ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/signin"), ("POST", "/signin"), ("GET", "/favicon.ico"),
    }  # fmt: skip


def test_every_route_declares_a_role_or_is_public(team: Team) -> None:
    assert undeclared_routes(team.app) == []


@pytest.mark.parametrize(("method", "path"), PRIVATE)
def test_strangers_are_refused(team: Team, method: str, path: str) -> None:
    assert _send(team.client(), method, path) == 401
    forged = TestClient(team.app, base_url=BASE_URL, headers={"Authorization": "Bearer amp_" + "x" * 43})
    assert _send(forged, method, path) == 401


@pytest.mark.parametrize(("method", "path"), PRIVATE)
def test_each_role_is_refused_what_is_above_it(team: Team, method: str, path: str) -> None:
    needed = ROLES.index(_needed(method, path))
    for role in ROLES[:needed]:
        assert _send(team.client(role), method, path) == 403, role


@pytest.mark.parametrize(("method", "path"), [route for route in PRIVATE if route[0] in UNSAFE])
def test_other_sites_cannot_use_a_session(team: Team, method: str, path: str) -> None:
    browser = team.browser("admin")
    browser.headers["Origin"] = "http://evil.example"
    assert _send(browser, method, path) == 403
    browser.headers["Sec-Fetch-Site"] = "cross-site"
    assert _send(browser, method, path) == 403


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_rebound_names_reach_nothing(team: Team, method: str, path: str) -> None:
    client = team.client("admin")
    client.headers["Host"] = "rebound.example:8420"
    assert _send(client, method, path) == 421


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"])
@pytest.mark.parametrize(
    "path",
    [
        "/nowhere", "/api/v1/experiments/", "/api/v1/../api/v1/users", "//api/v1/users", "/api/v1/users;x",
        "/API/V1/USERS", "/healthz/", "/healthz/../api/v1/users", "/signin/x", "/static", "/api/v1/users%2f",
        "/api/v1/runs/1;/../../users", "/docs", "/openapi.json", "/redoc",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_opens_a_door(team: Team, method: str, path: str) -> None:
    client = team.client()
    assert client.send(client.build_request(method, BASE_URL + path)).status_code == 401


@pytest.mark.parametrize(("method", "path"), sorted(set(ROUTES) & PUBLIC))
def test_public_routes_answer_strangers_without_telling_anything(team: Team, method: str, path: str) -> None:
    response = team.browser().request(method, path)
    assert response.status_code in (200, 303) or (method, path) == ("POST", "/signin")
    assert "digits" not in response.text


def test_a_route_without_a_role_is_refused_at_run_time() -> None:
    app = FastAPI(dependencies=[Depends(refuse_undeclared)], openapi_url=None, docs_url=None, redoc_url=None)
    install_handlers(app)

    @app.get("/forgotten")
    def forgotten() -> str:
        return "secret"

    assert undeclared_routes(app) == ["GET /forgotten"]
    response = TestClient(app, base_url=BASE_URL).get("/forgotten")
    assert response.status_code == 403
    assert "declares no role" in response.json()["detail"]
