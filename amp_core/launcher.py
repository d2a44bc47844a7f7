"""Starting child processes: forked from a warm server in about a tenth of a second, or cold. No torch in here."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping

import msgspec

from amp_core.child_environment import child_environment
from amp_core.child_process import Child, ChildPipes, ColdChild
from amp_core.config import RunConfig
from amp_core.fork_client import ForkClient, ForkServerLost

__all__ = ["Child", "Launcher", "child_environment"]

READY_TIMEOUT_S = 60.0
MAX_EARLY_DEATHS = 3

_log = logging.getLogger(__name__)


class Launcher:
    """Launches runs as child processes with the environment ``env`` (by default `child_environment`).

    With ``warm`` it keeps a fork server that has torch imported, started at once. When that is dead, the launch at hand
    starts cold and a new server warms up meanwhile; a server that dies `MAX_EARLY_DEATHS` times before it is ready is
    given up. Safe to use from several threads.
    """

    def __init__(self, warm: bool, env: Mapping[str, str] | None = None) -> None:
        self._env = dict(child_environment() if env is None else env)
        self._lock = threading.Lock()
        self._children: weakref.WeakSet[Child] = weakref.WeakSet()
        self._early_deaths = 0
        self._warm = warm
        self._closed = False
        self._client = ForkClient(self._env) if warm else None

    @property
    def fork_server_pid(self) -> int | None:
        """The process id of the fork server, if there is one."""
        return self._client.pid if self._client is not None else None

    def launch(self, config: RunConfig) -> Child:
        """A new child that runs ``config``. Raises `OSError` if the system has no process or descriptor left."""
        if self._closed:
            raise RuntimeError("this launcher is closed: make a new one")
        child = self._fork() or self._start()
        self._children.add(child)
        child.send_config(msgspec.json.encode(config) + b"\n")
        return child

    def close(self) -> None:
        """Kill what still runs and end the fork server."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        for child in list(self._children):
            child.kill()
        if client is not None:
            client.close()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fork(self) -> Child | None:
        client = self._ready_client()
        if client is None:
            return None
        pipes = ChildPipes()
        try:
            child = client.fork(pipes)
        except ForkServerLost as error:
            pipes.close()
            _log.warning("starting a run cold: %s", error)
            self._replace(client)
            return None
        pipes.close_theirs()
        return child

    def _ready_client(self) -> ForkClient | None:
        """The fork server once it is ready; None when this launch has to start cold."""
        client = self._client
        if client is None:
            return None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not client.ready.wait(0.05) and not client.lost.is_set():
            if time.monotonic() > deadline:
                _log.warning("the fork server is not ready after %g s; starting a run cold", READY_TIMEOUT_S)
                return None
        if client.lost.is_set():
            self._replace(client)
            return None
        return client

    def _replace(self, dead: ForkClient) -> None:
        """Start another fork server in place of a dead one, unless it never gets ready."""
        with self._lock:
            if self._client is not dead or self._closed:
                return
            self._early_deaths = 0 if dead.ready.is_set() else self._early_deaths + 1
            if self._early_deaths >= MAX_EARLY_DEATHS:
                _log.error("the fork server died %d times before it was ready; runs start cold", MAX_EARLY_DEATHS)
                self._client = None
            else:
                self._client = ForkClient(self._env)

    def _start(self) -> Child:
        pipes = ChildPipes()
        stdin, log, events = pipes.theirs
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "amp_core", "run", "--events-fd", str(events)],
                stdin=stdin, stdout=log, stderr=log, pass_fds=[events], start_new_session=True, env=self._env,
            )  # fmt: skip
        except OSError:
            pipes.close()
            raise
        pipes.close_theirs()
        return ColdChild(process, pipes)
