"""Describing workload files in a child process, because to describe one is to run its code."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_core.launcher import child_environment

DESCRIBE_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Described:
    """One workload of one file, as `amp_core` describes it, or the error why it cannot."""

    name: str
    path: Path
    source_hash: str
    description: dict[str, Any]
    error: str | None


def describe_files(paths: Sequence[Path], timeout_s: float = DESCRIBE_TIMEOUT_S) -> list[Described]:
    """Describe the files together; when one of them crashes or hangs the process, each by itself."""
    if not paths:
        return []
    lines, fault = _describe(paths, timeout_s)
    if fault is None:
        return lines
    if len(paths) > 1:
        return [described for path in paths for described in describe_files([path], timeout_s)]
    (path,) = paths
    return [Described(name=path.stem, path=path, source_hash="", description={}, error=fault)]


def _describe(paths: Sequence[Path], timeout_s: float) -> tuple[list[Described], str | None]:
    command = [sys.executable, "-m", "amp_core", "describe", *map(str, paths)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=child_environment(),
            start_new_session=True,
        )  # fmt: skip
        _limit_cpu(process.pid, timeout_s)
        try:
            exit_code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return [], f"importing it took longer than {timeout_s:g} s: move the work into model() or batches()"
        finally:
            _kill_group(process)
        for file in (output, errors):
            file.seek(0)
        lines = [_parse(line) for line in output.read().splitlines() if line.startswith(b"{")]
        last_words = errors.read()[-1000:].decode(errors="replace").strip()
    if exit_code != 0 or not lines:
        return lines, f"importing it ended the process with exit code {exit_code}: {last_words}".rstrip(": ")
    return lines, None


def _parse(line: bytes) -> Described:
    fields = json.loads(line)
    path, name, source_hash, error = (fields.pop(key) for key in ("path", "name", "source_hash", "error"))
    return Described(name=name, path=Path(path), source_hash=source_hash, description=fields, error=error)


def _limit_cpu(pid: int, timeout_s: float) -> None:
    """Bound an endless loop even if this worker is killed and cannot end it; where the system offers that."""
    if hasattr(resource, "prlimit"):
        limit = 2 * math.ceil(timeout_s)
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_CPU, (limit, limit))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
