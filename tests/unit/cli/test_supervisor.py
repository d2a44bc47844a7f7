"""The supervisor keeps children alive, stops all of them, and leaves no orphan when it is killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from server.cli import children, supervisor
from server.cli.children import ChildProcess, spell_status
from server.cli.guard import alive
from server.cli.supervisor import Supervisor


def until(condition, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def child(tmp_path: Path, code: str, name: str = "sleeper") -> ChildProcess:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return ChildProcess(name, command, tmp_path / "logs" / f"{name}.log", dict(os.environ))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "TEND_S", 0.02)
    monkeypatch.setattr(supervisor, "STOP_S", 0.5)
    monkeypatch.setattr(children, "FIRST_PAUSE_S", 0.05)


def test_a_killed_child_comes_back_and_that_is_said(tmp_path: Path, quick: None) -> None:
    said: list[str] = []
    sleeper = child(tmp_path, "import time; time.sleep(60)")
    with Supervisor(said.append) as running:
        running.run(sleeper)
        first = sleeper.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: sleeper.pid not in (None, first))
        second = sleeper.pid
    assert len(said) == 1
    assert "sleeper ended (signal SIGKILL)" in said[0]
    assert second is not None
    assert not alive(second)


def test_a_child_that_keeps_dying_is_tried_less_and_less_often(tmp_path: Path, quick: None) -> None:
    said: list[str] = []
    dying = child(tmp_path, "print('last words', flush=True); raise SystemExit(3)", "dying")
    with Supervisor(said.append) as running:
        running.run(dying)
        until(lambda: len(said) >= 3)
    pauses = [float(line.split(" in ")[1].split(" s")[0]) for line in said]
    assert pauses[:3] == [0.05, 0.1, 0.2]
    assert "exit status 3" in said[0]
    assert "last words" in dying.last_lines()


def test_stopping_ends_a_stubborn_child_and_its_own_children(tmp_path: Path, quick: None) -> None:
    pids = tmp_path / "pids"
    stubborn = child(
        tmp_path,
        f"""
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pid = os.fork()
        if pid: open({str(pids)!r}, "w").write(str(pid))
        time.sleep(60)
        """,
    )
    with Supervisor(print) as running:
        running.run(stubborn)
        until(lambda: pids.exists() and pids.read_text())
        leader, grandchild = stubborn.pid, int(pids.read_text())
    assert leader is not None
    assert not alive(leader)
    until(lambda: gone(grandchild))


def gone(pid: int) -> bool:
    """No such process, or only its entry is left until whoever adopted it collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return not alive(pid)


def test_a_killed_supervisor_leaves_no_orphan(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import os, sys, time
        from pathlib import Path
        from server.cli.children import ChildProcess
        from server.cli.supervisor import Supervisor
        sleeper = ChildProcess("s", [sys.executable, "-c", "import time; time.sleep(60)"],
                               Path({str(tmp_path)!r}) / "s.log", dict(os.environ))
        with Supervisor(print) as running:
            running.run(sleeper)
            print(sleeper.pid, flush=True)
            time.sleep(60)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
        parent.wait()
        until(lambda: gone(pid))


def test_logs_are_private_and_do_not_grow_without_end(tmp_path: Path, quick: None, monkeypatch) -> None:
    monkeypatch.setattr(children, "LOG_LIMIT_BYTES", 10)
    talker = child(tmp_path, "print('more than ten bytes')", "talker")
    with Supervisor(lambda line: None) as running:
        running.run(talker)
        until(lambda: talker.num_failures >= 2)
    assert talker.log_path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "logs" / "talker.log.1").exists()


@pytest.mark.parametrize(("status", "text"), [(0, "exit status 0"), (-11, "signal SIGSEGV"), (-99, "signal 99")])
def test_statuses_are_spelled(status: int, text: str) -> None:
    assert spell_status(status) == text
