"""The record of where a run ran."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from amp_core.environment import driver, git_commit, packages


def test_packages_are_those_imported_with_their_versions() -> None:
    found = packages()
    assert found["numpy"] == np.__version__
    assert "xformers" not in found


def test_driver_is_read_from_the_kernel_modules_line(tmp_path: Path) -> None:
    told = tmp_path / "version"
    told.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.03  Fri Aug 16 21:39:15 UTC 2024\n")
    assert driver(told) == "560.35.03"
    assert driver(tmp_path / "none") is None


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
