"""Ends what a supervisor started when the supervisor itself is gone, however it went.

The supervisor writes ``+PID`` when it starts a process and ``-PID`` once it has reaped one; the end of this program's
standard input means that the supervisor has died. What is still listed then gets SIGTERM and, after a grace, SIGKILL
to its whole group. Standard library only: it starts in milliseconds and survives a kill -9 of its parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GRACE_S = 6.0


def main() -> None:
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # only the end of the pipe counts
    listed: set[int] = set()
    for line in sys.stdin:
        (listed.add if line.startswith("+") else listed.discard)(int(line[1:]))
    end(listed)


def end(processes: set[int], grace_s: float = GRACE_S) -> None:
    """Terminate the processes politely, then kill the groups they lead."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(alive(pid) for pid in processes):
        time.sleep(0.05)
    for pid in processes:
        kill_group(pid)


def kill_group(pid: int) -> None:
    """SIGKILL to the group that ``pid`` leads or led: its members may outlive it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process with this id exists (a zombie counts)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
