"""The parent's handle on a child process: its two pipes, how to stop it, and how it ended. No torch."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from typing import BinaryIO

POLL_S = 0.02


class ChildPipes:
    """The three pipes of a child that is about to start: ``theirs`` are its stdin, log and events."""

    def __init__(self) -> None:
        stdin_read, stdin_write = os.pipe()
        log_read, log_write = os.pipe()
        events_read, events_write = os.pipe()
        self.theirs = (stdin_read, log_write, events_write)
        self.stdin: BinaryIO = os.fdopen(stdin_write, "wb", buffering=0)
        self.events: BinaryIO = os.fdopen(events_read, "rb")
        self.log: BinaryIO = os.fdopen(log_read, "rb")

    def close_theirs(self) -> None:
        """Close the child's ends in this process, once the child has them."""
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = (-1, -1, -1)

    def close(self) -> None:
        """Close everything: no child came of it, or one that must not live."""
        if self.theirs[0] >= 0:
            self.close_theirs()
        for pipe in (self.stdin, self.events, self.log):
            pipe.close()


class Child(ABC):
    """A running child and the pipes it owns: ``events`` holds frames, ``log`` its stdout and stderr as bytes.

    Read both until they end; a child blocks when they are full. The child lives as long as this handle's ``stdin`` is
    open, so that it dies with the process that holds it.
    """

    def __init__(self, pid: int, pipes: ChildPipes) -> None:
        self.pid = pid
        self.events = pipes.events
        self.log = pipes.log
        self._stdin = pipes.stdin
        self._exit_code: int | None = None

    def send_config(self, line: bytes) -> None:
        """Write the first line of the child's stdin; a child that died at once tells by its exit code."""
        view = memoryview(line)
        with contextlib.suppress(BrokenPipeError):
            while view:
                view = view[self._stdin.write(view) :]

    def cancel(self) -> None:
        """Ask the child to end soon: it hands over what it has and sends ``Failed(kind="interrupted")``."""
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(b"cancel\n")

    def pause(self) -> None:
        """Ask the child to end soon in such a way that a later attempt goes on: a checkpoint, then ``Paused``."""
        with contextlib.suppress(OSError, ValueError):
            self._stdin.write(b"pause\n")

    def kill(self) -> None:
        """Kill the child and every process of its group; once it has ended, nothing is left to kill."""
        if self._exit_code is None:
            kill_group(self.pid)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code, negative for a signal; None if the child still runs after ``timeout_s``.

        When the leader has ended, what is left of its group is killed, so that the pipes end too.
        """
        if self._exit_code is None:
            self._exit_code = self._await(timeout_s)
            if self._exit_code is not None:
                with contextlib.suppress(OSError):
                    self._stdin.close()
        return self._exit_code

    @abstractmethod
    def _await(self, timeout_s: float | None) -> int | None:
        """Wait for the end; kill the rest of the group before the leader's process id can be given away."""


class ColdChild(Child):
    """A child started as a new interpreter."""

    def __init__(self, process: subprocess.Popen[bytes], pipes: ChildPipes) -> None:
        super().__init__(process.pid, pipes)
        self._process = process

    def _await(self, timeout_s: float | None) -> int | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._has_ended():
            if deadline is not None and time.monotonic() >= deadline:
                return None
            time.sleep(POLL_S if deadline is None else min(POLL_S, max(0.0, deadline - time.monotonic())))
        kill_group(self.pid)
        return self._process.wait()

    def _has_ended(self) -> bool:
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT  # the process id stays ours until the group is killed
        return os.waitid(os.P_PID, self.pid, options) is not None


class ForkedChild(Child):
    """A child of the fork server, which reports its exit code.

    Should the server die, the child goes on; its exit code can no longer be known, and -SIGKILL stands for "gone". A
    regular end is told by the child's last event in any case.
    """

    def __init__(self, pid: int, pipes: ChildPipes) -> None:
        super().__init__(pid, pipes)
        self._ended = threading.Event()
        self._reported: int | None = None
        self._pidfd = _pidfd(pid)

    def report(self, exit_code: int) -> None:
        """The fork server has reaped the child (and killed its group)."""
        self._reported = exit_code
        self._ended.set()

    def orphan(self) -> None:
        """The fork server is gone: watch the process itself."""
        if not self._ended.is_set():
            threading.Thread(target=self._watch, name=f"orphan {self.pid}", daemon=True).start()

    def kill(self) -> None:
        if not self._ended.is_set():
            kill_group(self.pid)

    def _await(self, timeout_s: float | None) -> int | None:
        if not self._ended.wait(timeout_s):
            return None
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        return self._reported

    def _watch(self) -> None:
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            poll.poll()
        else:
            with contextlib.suppress(ProcessLookupError):
                while True:
                    os.kill(self.pid, 0)
                    time.sleep(POLL_S)
        kill_group(self.pid)
        self.report(-signal.SIGKILL)


def kill_group(pid: int) -> None:
    """SIGKILL to a process group, if there still is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable at the end of any process, or None where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
