"""A team for API tests: an application with one person of each role, and a workload that can be submitted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from server.access.cookies import SESSION_COOKIE
from server.accounts import service
from server.app import create_app
from server.db.engine import Database
from server.db.tables import Worker, Workload
from server.settings import Settings

BASE_URL = "http://127.0.0.1:8420"
ROLES = ("viewer", "submitter", "admin")


def _parameter(name: str, kind: str, default: object, **limits: object) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "default": default,
        "min": None,
        "max": None,
        "choices": None,
        "help": "",
    } | limits


DIGITS: dict[str, Any] = {
    "title": "Digits",
    "summary": "Handwritten digits.",
    "steps": 120,
    "recipes": ["32-true", "bf16-mixed", "16-mixed"],
    "primary": {
        "name": "accuracy",
        "higher_is_better": True,
        "margin": 0.005,
        "relative": False,
        "unit": "",
        "resolution": 0.002,
    },
    "may_schedule": False,
    "parameters": [
        _parameter("width", "int", 32, min=1, max=512),
        _parameter("lr", "float", 1e-3, min=0.0),
        _parameter("norm", "str", "batch", choices=["batch", "none"]),
        _parameter("augment", "bool", False),
    ],
}


def one_line(page: str) -> str:
    """A page with its white space folded: how a template breaks its lines means nothing."""
    return " ".join(page.split())


class Team:
    """The application and its people. Nothing is rung: the broker of the settings does not exist."""

    def __init__(self, database: Database, folder: Path, **settings: Any) -> None:
        self.database = database
        self.settings = Settings(data_dir=folder, database_url=database.url, sweep_s=3600, **settings)
        self.app: FastAPI = create_app(self.settings, database)
        self.ids: dict[str, int] = {}
        self.tokens: dict[str, str] = {}
        with database.write() as session:
            for role in ROLES:
                user = service.create_user(session, role, role)
                self.ids[role] = user.id
                _, self.tokens[role] = service.create_token(session, user, "test")

    def client(self, role: str | None = None) -> TestClient:
        """A client with the API token of ``role``, or a stranger."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if role is not None else {}
        return TestClient(
            self.app, base_url=BASE_URL, headers=headers, follow_redirects=False, raise_server_exceptions=True
        )

    def browser(self, role: str | None = None) -> TestClient:
        """A browser, signed in as ``role``, that sends Origin as browsers do."""
        client = TestClient(
            self.app,
            base_url=BASE_URL,
            headers={"Origin": BASE_URL, "Accept": "text/html"},
            follow_redirects=False,
            raise_server_exceptions=True,
        )
        if role is not None:
            with self.database.write() as session:
                user = service.get_user(session, self.ids[role])
                client.cookies.set(SESSION_COOKIE, service.open_session(session, user, days=1))
        return client

    def add_workload(self, name: str = "digits-cnn", error: str | None = None, **description: Any) -> None:
        """A workload as a worker's scan would list it."""
        now = datetime.now(UTC)
        with self.database.write() as session:
            session.add(
                Workload(
                    name=name,
                    source_hash=f"{name:0<64}"[:64],
                    path=f"/workloads/{name}.py",
                    description={} if error else {**DIGITS, **description},
                    error=error,
                    first_seen_at=now,
                    seen_at=now,
                )
            )

    def add_worker(
        self, name: str = "worker-1", kinds: tuple[str, ...] = ("cpu",), slots: int = 1, abilities: tuple[str, ...] = ()
    ) -> None:
        """A live worker offering devices of these kinds."""
        now = datetime.now(UTC)
        with self.database.write() as session:
            session.add(
                Worker(
                    name=name,
                    host="host",
                    pid=1,
                    version="0",
                    slots=slots,
                    devices=[{"kind": kind, "name": kind, "abilities": list(abilities)} for kind in kinds],
                    state="online",
                    started_at=now,
                    heartbeat_at=now,
                )
            )
