"""A real server process: where it listens, what it refuses, what it logs, how it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from server.accounts import service
from server.db.engine import Database
from server.db.tables import Base

SCRIPT = """
import sys
from server.app import serve
from server.db.errors import StoreError
from server.errors import ConfigurationError
from server.settings import Settings
try:
    serve(Settings(), on_listening=lambda url: print(url, flush=True))
except (ConfigurationError, StoreError) as error:
    sys.exit(str(error))
"""


class Process:
    """The server as a process of its own; its log is in ``log``."""

    def __init__(self, folder: Path, **settings: object) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AMPBOARD_")}
        given = {"data_dir": folder, "port": 0, "sweep_s": 0.2, **settings}
        environment |= {f"AMPBOARD_{name.upper()}": str(value) for name, value in given.items()}
        self.log_file = folder / "server.log"
        with self.log_file.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.child.stdout is not None
        self.url = self.child.stdout.readline().strip()

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def stop(self, sig: int = signal.SIGTERM) -> int:
        self.child.send_signal(sig)
        return self.wait()

    def wait(self) -> int:
        code = self.child.wait(timeout=30)
        assert self.child.stdout is not None
        self.child.stdout.close()
        return code


@contextmanager
def serving(folder: Path, **settings: object) -> Iterator[Process]:
    process = Process(folder, **settings)
    try:
        yield process
    finally:
        if process.child.poll() is None:
            process.child.kill()
            process.wait()


@contextmanager
def stored(folder: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{folder / 'ampboard.sqlite3'}")
    yield database
    database.dispose()


def _token(folder: Path, role: str = "admin") -> str:
    with stored(folder) as database, database.write() as session:
        user = service.create_user(session, role, role)
        return service.create_token(session, user, "test")[1]


def test_a_free_port_is_taken_and_told(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert urlsplit(server.url).hostname == "127.0.0.1"
        assert urlsplit(server.url).port not in (None, 0)
        assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{server.url}/readyz").json() == {"status": "ready"}
        assert "server" not in httpx.get(f"{server.url}/healthz").headers
        assert server.stop() in (0, -signal.SIGTERM)


def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving(tmp_path, port=port) as server:
            assert server.wait() == 1
            assert f"port={port} on 127.0.0.1 is taken by another program: set AMPBOARD_PORT" in server.log
            assert "Traceback" not in server.log


def test_beyond_loopback_somebody_must_have_an_account(tmp_path: Path) -> None:
    with serving(tmp_path, host="0.0.0.0") as server:
        assert server.wait() == 1
        assert "host='0.0.0.0' is open to the network" in server.log
        assert "ampboard user add" in server.log
    token = _token(tmp_path)
    with serving(tmp_path, host="0.0.0.0") as server:
        response = httpx.get(f"{server.url}/api/v1/me", headers={"Authorization": f"Bearer {token}"})
        assert response.json()["role"] == "admin"


def test_a_foreign_address_is_named(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        first.stop()
    _token(tmp_path)
    with serving(tmp_path, host="192.0.2.1") as server:
        assert server.wait() == 1
        assert "host='192.0.2.1' cannot be listened on" in server.log


def test_secrets_never_reach_the_log(tmp_path: Path) -> None:
    with serving(tmp_path, log_level="DEBUG") as server:
        token = _token(tmp_path)
        with stored(tmp_path) as database, database.write() as session:
            link = service.first_sign_in_link(session)
        with httpx.Client(base_url=server.url, headers={"Origin": server.url}) as browser:
            browser.get("/signin", params={"token": link})
            signed_in = browser.post("/signin", data={"token": link})
            assert signed_in.status_code == 303
            session_secret = browser.cookies["ampboard_session"]
            browser.get("/api/v1/me")
            browser.get(f"/nowhere/{token}")
        httpx.get(f"{server.url}/api/v1/me", headers={"Authorization": f"Bearer {token}"})
        httpx.get(f"{server.url}/api/v1/me?token={token}")
        server.stop()
        assert "GET /signin 200" in server.log
        for secret in (token, link, session_secret):
            assert secret not in server.log


def test_open_streams_do_not_keep_it_from_stopping(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        token, experiment_id = _token(tmp_path), _experiment(tmp_path)
        headers, first, ended = {"Authorization": f"Bearer {token}"}, threading.Event(), threading.Event()

        def watch() -> None:
            url = f"{server.url}/api/v1/experiments/{experiment_id}/stream"
            try:
                with httpx.stream("GET", url, headers=headers, timeout=30) as response:
                    for _ in response.iter_lines():
                        first.set()
            except httpx.HTTPError:
                pass
            ended.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert first.wait(20), server.log
        started = time.monotonic()
        assert server.stop() in (0, -signal.SIGTERM)
        assert time.monotonic() - started < 4
        assert ended.wait(5)
        watcher.join()
        assert "Traceback" not in server.log, server.log


def test_a_disabled_readers_open_stream_ends(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        token = _token(tmp_path, "viewer")
        url = f"{server.url}/api/v1/experiments/{_experiment(tmp_path)}/stream"
        with httpx.stream("GET", url, headers={"Authorization": f"Bearer {token}"}, timeout=40) as response:
            lines = response.iter_lines()
            next(lines)
            with stored(tmp_path) as database, database.write() as session:
                service.create_user(session, "other", "admin")
                service.change_user(session, service.find_user(session, "viewer"), disabled=True)
            began = time.monotonic()
            for _ in lines:
                pass
            assert time.monotonic() - began < 25
        assert "Traceback" not in server.log, server.log


def _experiment(folder: Path) -> int:
    """A queued experiment, inserted as rows: no worker is there to run it."""
    from datetime import UTC, datetime

    from server.db.tables import Experiment, Project, Run, User, Workload

    now = datetime.now(UTC)
    with stored(folder) as database, database.write() as session:
        project = Project(name="p", created_at=now)
        workload = Workload(name="w", source_hash="0", path="/w.py", description={}, first_seen_at=now, seen_at=now)
        session.add_all([project, workload])
        session.flush()
        experiment = Experiment(
            project_id=project.id, workload_id=workload.id, owner_id=session.query(User).first().id, name="e",
            state="queued", plan={}, created_at=now,
        )  # fmt: skip
        session.add(experiment)
        session.flush()
        session.add(
            Run(
                experiment_id=experiment.id, kind="train", role="baseline", recipe_name="32-true", recipe={}, seed=0,
                steps=10, config={}, state="queued", created_at=now,
            )
        )  # fmt: skip
        return experiment.id


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_too_large_is_cut_off_on_the_wire(tmp_path: Path, declared: bool) -> None:
    with serving(tmp_path, max_body_bytes=20_000) as server:
        token = _token(tmp_path)
        address = ("127.0.0.1", urlsplit(server.url).port)
        length = "Content-Length: 900000000" if declared else "Transfer-Encoding: chunked"
        head = (
            f"POST /api/v1/experiments HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\n{length}\r\n\r\n"
        )
        chunk = b"x" * 10_000 if declared else b"2710\r\n" + b"x" * 10_000 + b"\r\n"
        with socket.create_connection(address, timeout=10) as wire:
            wire.sendall(head.encode())
            try:
                for _ in range(5):
                    wire.sendall(chunk)
            except OSError:
                pass  # the server has answered and closed
            assert wire.recv(100).startswith(b"HTTP/1.1 413 ")


def test_an_old_database_is_named_and_left_alone(tmp_path: Path) -> None:
    with stored(tmp_path) as database:
        Base.metadata.create_all(database.engine)
    with serving(tmp_path) as server:
        assert server.wait() == 1
        assert "no ampboard version" in server.log
        assert "Traceback" not in server.log
