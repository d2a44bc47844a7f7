"""The long-lived children of a supervisor: how each is started, watched, started again, and stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol

from server.broker.embedded import BrokerError, EmbeddedBroker
from server.cli.errors import CommandError
from server.cli.guard import kill_group

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 60.0
BROKER_CHECK_S = 1.0
LOG_LIMIT_BYTES = 5 * 1024 * 1024

Say = Callable[[str], None]


class Guard:
    """The program that ends our children should this process be killed. See `server.cli.guard`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "server.cli.guard"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
            bufsize=1,
        )

    def add(self, pid: int) -> None:
        self._write(f"+{pid}\n")

    def remove(self, pid: int) -> None:
        self._write(f"-{pid}\n")

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a killed guard is no reason to stop working
            self._process.stdin.write(line)


class Child(Protocol):
    """What the supervisor asks of a child. Calls never overlap."""

    name: str

    def start(self, guard: Guard) -> None: ...

    def tend(self, guard: Guard, say: Say) -> None:
        """Notice a death, and bring the child back when its time has come."""

    def ask_to_stop(self) -> None: ...

    def stop_by(self, deadline: float, guard: Guard) -> None:
        """Wait until the deadline (of `time.monotonic`), then kill what is left."""


class ChildProcess:
    """One long-lived child: its command, its log file, and when it may start again after dying."""

    def __init__(self, name: str, command: list[str], log_path: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.log_path = log_path
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self.num_failures = 0
        self._restart_at: float | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self, guard: Guard) -> None:
        """Start it in a session of its own, so that a Ctrl-C at the terminal reaches the supervisor only."""
        self._restart_at = None
        self._started_at = time.monotonic()
        with _open_log(self.log_path) as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        guard.add(self._process.pid)

    def ended(self) -> int | None:
        """The exit status once it has died, negative for a signal; None while it lives."""
        return self._process.poll() if self._process else None

    def tend(self, guard: Guard, say: Say) -> None:
        if self._restart_at is not None:
            if time.monotonic() >= self._restart_at:
                self.start(guard)
            return
        status = self.ended()
        if self._process is None or status is None:
            return
        guard.remove(self._process.pid)
        kill_group(self._process.pid)  # members of its group may have outlived it
        self._process = None
        healthy = time.monotonic() - self._started_at > HEALTHY_S
        self.num_failures = 1 if healthy else self.num_failures + 1
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (self.num_failures - 1))
        self._restart_at = time.monotonic() + pause
        say(f"{self.name} ended ({spell_status(status)}); starting it again in {pause:g} s. Log: {self.log_path}")

    def ask_to_stop(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def stop_by(self, deadline: float, guard: Guard) -> None:
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        kill_group(self._process.pid)
        self._process.wait()
        guard.remove(self._process.pid)
        self._process = None

    def last_lines(self, num_lines: int = 15) -> str:
        """The end of its log, for an error message."""
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-num_lines:])
        except OSError:
            return ""


class BrokerChild:
    """The embedded broker. It leads its own life and is known by its socket: a survivor of an earlier crash is kept."""

    name = "broker"

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker
        self._pid: int | None = None
        self._next_check_at = 0.0

    def start(self, guard: Guard) -> None:
        try:
            pid = self._broker.ensure()
        except BrokerError as error:
            raise CommandError(str(error)) from error
        if self._pid is not None:
            guard.remove(self._pid)
        guard.add(pid)
        self._pid = pid

    def tend(self, guard: Guard, say: Say) -> None:
        if time.monotonic() < self._next_check_at:
            return
        self._next_check_at = time.monotonic() + BROKER_CHECK_S
        if self._broker.is_running():
            return
        try:
            self.start(guard)
            say("broker ended; it was started again")
        except CommandError as error:
            self._next_check_at = time.monotonic() + LONGEST_PAUSE_S
            say(str(error))

    def ask_to_stop(self) -> None:
        """Nothing yet: server and worker want it until they have ended."""

    def stop_by(self, deadline: float, guard: Guard) -> None:
        self._broker.stop(timeout_s=max(0.5, deadline - time.monotonic()))
        if self._pid is not None:
            guard.remove(self._pid)


def spell_status(status: int) -> str:
    """``signal SIGKILL`` or ``exit status 3``."""
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"


def _open_log(path: Path) -> IO[bytes]:
    """Append to the log, readable by its owner only; a large one is moved aside first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        if path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
