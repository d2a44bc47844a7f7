"""Server, worker and embedded broker together on one machine: what ``ampboard up`` and ``ampboard demo`` start."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx

from server.accounts.service import sign_in_url
from server.broker.embedded import EmbeddedBroker
from server.cli import local
from server.cli.children import BrokerChild, ChildProcess
from server.cli.errors import CommandError
from server.cli.ports import claim_port
from server.cli.supervisor import Supervisor
from server.client import Client, ClientError, url_file
from server.db.upgrade import open_database
from server.settings import Settings

SERVER_START_S = 60.0
WORKER_START_S = 120.0
POLL_S = 0.1

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A running server and worker. ``sign_in_url`` works once, within 15 minutes."""

    url: str
    token: str
    sign_in_url: str

    def client(self) -> Client:
        return Client(self.url, self.token)


@contextmanager
def running(settings: Settings, say: Say) -> Iterator[Installation]:
    """Start everything, yield once server and worker are ready, stop everything on leaving.

    SIGTERM and SIGHUP leave the block like Ctrl-C: as KeyboardInterrupt in the main thread.

    Raises:
        CommandError: the data folder or the port is in use, or a process does not start.
        SchemaError: the database is not of this version.
    """
    local.prepare_folder(settings)
    with local.held(settings), _signals_interrupt():
        port = claim_port(settings.host, settings.port)
        database = open_database(settings)
        try:
            access = local.grant_access(settings, database)
        finally:
            database.dispose()
        url = f"http://{_reachable(settings.host)}:{port}"
        installation = Installation(url=url, token=access.token, sign_in_url=sign_in_url(url, access.sign_in))
        with Supervisor(say) as supervisor:
            _start(settings, supervisor, installation, port)
            local.write_private(url_file(settings), url)
            try:
                yield installation
            finally:
                say("Stopping …")
                url_file(settings).unlink(missing_ok=True)


def _start(settings: Settings, supervisor: Supervisor, installation: Installation, port: int) -> None:
    """Start broker, server and worker, and wait for the last two side by side: imports take longest."""
    if settings.embedded_broker:
        supervisor.run(BrokerChild(EmbeddedBroker(settings)))
    environment = os.environ | {
        "AMPBOARD_HOST": settings.host,
        "AMPBOARD_PORT": str(port),
        "AMPBOARD_DATA_DIR": str(settings.data_dir.absolute()),
    }
    logs = settings.data_dir / "logs"
    server = ChildProcess("server", [sys.executable, "-m", "server.cli", "server"], logs / "server.log", environment)
    worker = ChildProcess("worker", [sys.executable, "-m", "worker"], logs / "worker.log", environment)
    supervisor.run(server)
    supervisor.run(worker)
    _await_ready([server, worker], "server", SERVER_START_S, lambda: _server_is_ready(installation.url))
    with installation.client() as client:
        _await_ready([server, worker], "worker", WORKER_START_S, lambda: _worker_is_ready(client, worker.pid))


def _await_ready(children: list[ChildProcess], name: str, limit_s: float, ready: Callable[[], bool]) -> None:
    """Return once ``ready``. Raises `CommandError` as soon as any child has died, or when the time is up."""
    deadline = time.monotonic() + limit_s
    while not ready():
        for child in children:
            if child.num_failures:
                raise CommandError(f"the {child.name} ended while starting. {_end_of_log(child)}")
            if child.name == name and time.monotonic() > deadline:
                raise CommandError(f"the {child.name} is not ready after {limit_s:g} s. {_end_of_log(child)}")
        time.sleep(POLL_S)


def _end_of_log(child: ChildProcess) -> str:
    return f"The end of {child.log_path}:\n{child.last_lines()}"


def _server_is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5.0, trust_env=False).is_success
    except httpx.TransportError:
        return False


def _worker_is_ready(client: Client, pid: int | None) -> bool:
    """This very worker is online (not one of an earlier start) and has listed its workloads."""
    try:
        workers = client.get("/api/v1/workers")["items"]
        online = any(worker["state"] == "online" and worker["pid"] == pid for worker in workers)
        return online and bool(client.get("/api/v1/workloads")["items"])
    except ClientError:
        return False


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does; what nohup ignores stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    heeded = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is not signal.SIG_IGN]
    before = {signum: signal.signal(signum, interrupt) for signum in heeded}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _reachable(host: str) -> str:
    """The address that a browser on this machine uses for a listening address."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - compared, not bound
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def display_folder(path: Path) -> str:
    """The path with ``~`` for the home folder."""
    try:
        return f"~/{path.absolute().relative_to(Path.home())}"
    except ValueError:
        return str(path)
