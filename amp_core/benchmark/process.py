"""A forked process of a benchmark, and the parent's handle on it.

Forked before this process computes anything: a fork after an OpenMP parallel region would hang in its first one.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar

from amp_core.benchmark.messages import Answer, Broken, RunBlock, answers, encode
from amp_core.errors import ArmFailed
from amp_core.failure import failure_of

T = TypeVar("T", bound=Answer)


class ArmProcess:
    """Runs ``work(connection)`` in a fork. The process belongs to this one's group, and dies with it."""

    def __init__(self, arm: str, work: Callable[[Connection], None], title: str = "") -> None:
        self.arm = arm
        self._title = title or f"the {arm} arm of the benchmark"
        self._connection, theirs = Pipe()
        self._pid: int | None = os.fork()
        if self._pid == 0:
            self._connection.close()
            _serve(theirs, work)
        theirs.close()

    def ask(self, request: RunBlock) -> None:
        """Send a request; `answer` has what comes of it."""
        with contextlib.suppress(OSError):  # it died: the answer says so
            self._connection.send_bytes(encode(request))

    def answer(self, kind: type[T]) -> T:
        """The next answer. Raises `ArmFailed` if the process failed or died."""
        try:
            answer = answers.decode(self._connection.recv_bytes())
        except (EOFError, OSError) as error:
            raise ArmFailed(f"{self._title} {self._death()}", kind="exception") from error
        if isinstance(answer, Broken):
            raise ArmFailed(f"{self.arm} arm: {answer.message}", kind=answer.kind, traceback=answer.traceback)
        assert isinstance(answer, kind)
        return answer

    def close(self) -> None:
        """End the process at once."""
        self._connection.close()
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None

    def _death(self) -> str:
        assert self._pid is not None
        _, status = os.waitpid(self._pid, 0)
        self._pid = None
        code = os.waitstatus_to_exitcode(status)
        return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def _serve(connection: Connection, work: Callable[[Connection], None]) -> None:
    """In the fork: work until the parent ends it."""
    try:
        work(connection)
    except EOFError:
        pass
    except BaseException as error:  # noqa: BLE001 - it goes to the parent, and nothing may run on into its code
        failed = failure_of(error)
        with contextlib.suppress(OSError):
            connection.send_bytes(encode(Broken(kind=failed.kind, message=failed.message, traceback=failed.traceback)))
    os._exit(0)
