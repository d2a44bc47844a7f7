"""Which files a list of paths means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from amp_core.lint.finding import LintError

SKIPPED = {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "env"}


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Files as given, and the Python files of folders, sorted, without hidden folders and virtual environments.

    Raises LintError for a path that does not exist.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise LintError(f"{path}: no such file or folder")
        for file in [path] if path.is_file() else sorted(_below(path)):
            if file not in seen:
                seen.add(file)
                yield file


def _below(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            if entry.name not in SKIPPED and not (entry / "pyvenv.cfg").exists():
                yield from _below(entry)
        elif entry.suffix == ".py":
            yield entry
