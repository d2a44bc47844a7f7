"""The record of where a run ran."""

from __future__ import annotations

import subprocess
from pathlib import Path

from amp_core.environment import git_commit


def test_commit_of_a_workload_folder(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    (tmp_path / "workload.py").write_text("a = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "workload.py").write_text("a = 2\n")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD") + "+changes"
    assert git_commit(tmp_path / "missing") is None
