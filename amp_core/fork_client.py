"""The client of one fork server process (`amp_core.forkserver`): start it, ask it for children, hear how they end.

Requests and answers are lines of JSON on a socket pair; a request carries the child's three descriptors. No torch.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from amp_core.child_process import ChildPipes, ForkedChild

ANSWER_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 5.0


class ForkServerLost(Exception):
    """The fork server is dead or could not fork; the message says what is known."""


class ForkClient:
    """Starts a fork server at once and talks to it until it dies or is closed."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.ready = threading.Event()
        self.lost = threading.Event()
        self._ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-m", "amp_core", "serve", "--socket-fd", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=dict(env),
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid
        self._asking = threading.Lock()  # one request at a time: its answer is the next one
        self._state = threading.Condition()
        self._answer: dict[str, Any] | None = None
        self._children: dict[int, ForkedChild] = {}
        self._early_exits: dict[int, int] = {}
        threading.Thread(target=self._listen, name="fork server", daemon=True).start()

    def fork(self, pipes: ChildPipes) -> ForkedChild:
        """A child at the other ends of ``pipes``.

        Raises:
            ForkServerLost: the pipes may have reached a child nobody will hear of; close them, and it dies.
        """
        with self._asking:
            with self._state:
                self._answer = None
            try:
                socket.send_fds(self._ours, [b"fork\n"], list(pipes.theirs))
            except OSError as error:
                raise ForkServerLost(f"the fork server does not listen: {error}") from error
            answer = self._await_answer()
            if "pid" not in answer:
                raise ForkServerLost(f"the fork server could not fork: {answer.get('error')}")
            child = ForkedChild(answer["pid"], pipes)
            with self._state:
                self._children[child.pid] = child
                exit_code = self._early_exits.pop(child.pid, None)
            if exit_code is not None:
                self._end(child.pid, exit_code)
            elif self.lost.is_set():
                child.orphan()
            return child

    def close(self) -> None:
        """End the server, which kills the children it still has."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.lost.wait(CLOSE_TIMEOUT_S)

    def _await_answer(self) -> dict[str, Any]:
        with self._state:
            answered = self._state.wait_for(lambda: self._answer is not None or self.lost.is_set(), ANSWER_TIMEOUT_S)
            if self._answer is not None:
                return self._answer
        if not answered:
            self._process.kill()
        raise ForkServerLost("the fork server died" if answered else f"no answer within {ANSWER_TIMEOUT_S:g} s")

    def _listen(self) -> None:
        """Read answers and exits until the server is gone."""
        with contextlib.suppress(OSError, ValueError), self._ours.makefile("rb") as lines:
            for line in lines:
                self._take(json.loads(line))
        with self._state:
            self.lost.set()
            children = list(self._children.values())
            self._state.notify_all()
        self._ours.close()
        self._process.wait()
        for child in children:
            child.orphan()

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("ready"):
            self.ready.set()
        elif "exited" in message:
            self._end(message["exited"], message["code"])
        else:
            with self._state:
                self._answer = message
                self._state.notify_all()

    def _end(self, pid: int, exit_code: int) -> None:
        with self._state:
            child = self._children.pop(pid, None)
            if child is None:
                self._early_exits[pid] = exit_code  # faster than the thread that asked for it
        if child is not None:
            child.report(exit_code)
