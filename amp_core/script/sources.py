"""Which files make up one version of a workload: its own, and the script it names. Standard library only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

_SCRIPT = re.compile(rb"""^[ \t]+script(?:[ \t]*:[^=\n]+)?[ \t]*=[ \t]*(['"])([^'"\n]+)\1""", re.MULTILINE)


def named_scripts(source: bytes, folder: Path) -> Iterator[Path]:
    """The files that class bodies name as ``script = "train.py"``, relative to the workload file's folder."""
    for match in _SCRIPT.finditer(source):
        yield folder / match[2].decode(errors="replace")


def source_hash(path: Path) -> str:
    """SHA-256 over a workload file and the scripts it names. Raises `OSError` if the file itself cannot be read."""
    source = path.read_bytes()
    digest = hashlib.sha256(source)
    for script in named_scripts(source, path.parent):
        try:
            digest.update(script.read_bytes())
        except OSError:
            digest.update(b"missing")
    return digest.hexdigest()


_MARK = re.compile(r"\n# ---- (?P<name>.+?)(?P<missing>: missing)? ----\n")


def parts_of(text: str) -> list[str]:
    """The files that `source_text` joined, without those that were missing; whoever writes them checks the hash."""
    parts, at = list[str](), 0
    has_content = True
    for mark in _MARK.finditer(text):
        if has_content:
            parts.append(text[at : mark.start()])
        has_content, at = mark["missing"] is None, mark.end()
    return [*parts, text[at:]] if has_content else parts


def source_text(path: Path, limit: int) -> str | None:
    """A workload file and the scripts it names as one text; None above ``limit`` characters.

    Raises `OSError` if the file itself cannot be read.
    """
    source = path.read_bytes()
    parts = [source.decode(errors="replace")]
    for script in named_scripts(source, path.parent):
        try:
            parts.append(f"\n# ---- {script.name} ----\n{script.read_text(errors='replace')}")
        except OSError:
            parts.append(f"\n# ---- {script.name}: missing ----\n")
    text = "".join(parts).replace("\0", "\ufffd")  # PostgreSQL keeps no NUL in text
    return text if len(text) <= limit else None


def changed_at(path: Path) -> tuple[int, int]:
    """What tells that a version changed: newest modification in ns, total size. Raises `OSError` without the file."""
    source = path.read_bytes()
    states = [path.stat()]
    for script in named_scripts(source, path.parent):
        try:
            states.append(script.stat())
        except OSError:
            continue
    return max(state.st_mtime_ns for state in states), sum(state.st_size for state in states)
