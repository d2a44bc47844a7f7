"""Each way a child can end has its outcome and its reason."""

from __future__ import annotations

from typing import Any

import pytest

from amp_core.events import Failed
from worker.ending import Evidence, ending_of
from worker.limits import num_oom_kills, readable_bytes

LIMIT = {"kind": "time_limit", "message": "…", "remedy": "…"}


def seen(exit_code: int, **more: Any) -> Evidence:
    return Evidence(**{"exit_code": exit_code, "step": 57, "has_finished": False, **more})


@pytest.mark.parametrize(
    ("evidence", "outcome", "kind", "words"),
    [
        (seen(0, has_finished=True), "completed", None, ""),
        (seen(-11, has_finished=True), "completed", None, ""),
        (
            seen(1, failed=Failed(kind="exception", message="ValueError: no", traceback="T")),
            "failed",
            "exception",
            "no",
        ),
        (seen(3), "failed", "exit", "exit code 3 after step 57, without finishing"),
        (seen(0, step=0), "failed", "exit", "exit code 0 before its first step"),
        (seen(-11), "failed", "signal", "SIGSEGV (signal 11) after step 57"),
        (seen(-9), "failed", "signal", "SIGKILL"),
        (seen(-9, was_oom_killed=True), "failed", "out_of_memory", "because memory ran out"),
        (seen(-9, stopped_for=LIMIT, was_cancelled=True), "failed", "time_limit", "…"),
        (seen(1, failed=Failed(kind="interrupted", message="…"), was_cancelled=True), "cancelled", "cancelled", ""),
        (seen(-9, was_cancelled=True, was_killed=True), "cancelled", "cancelled", "did not stop when asked"),
        (seen(-64), "failed", "signal", "signal 64"),
    ],
)
def test_endings(evidence: Evidence, outcome: str, kind: str | None, words: str) -> None:
    ending = ending_of(evidence)
    assert ending.outcome == outcome
    assert ending.exit_code == evidence.exit_code
    if kind is None:
        assert ending.reason is None
    else:
        assert ending.reason is not None
        assert ending.reason["kind"] == kind
        assert words in ending.reason["message"]
        assert outcome == "cancelled" or ending.reason["remedy"]


def test_a_traceback_is_kept() -> None:
    ending = ending_of(seen(1, failed=Failed(kind="exception", message="m", traceback="Traceback …")))
    assert ending.reason is not None
    assert ending.reason["traceback"] == "Traceback …"


def test_the_kernels_own_count_tells_an_oom_kill(tmp_path: Any) -> None:
    (tmp_path / "memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    (tmp_path / "vmstat").write_text("pgfault 12\noom_kill 4\n")
    assert num_oom_kills(tmp_path / "memory.events", tmp_path / "vmstat") == 7
    assert num_oom_kills(tmp_path / "none", tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("size", "text"), [(12, "12 bytes"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")]
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert readable_bytes(size) == text
