"""How checkpoint files are named: ``step-<step>-<checksum>.pt``. No torch, since workers read names too."""

from __future__ import annotations

import re

NAME = re.compile(r"step-(\d{10})-([0-9a-f]{32})\.pt")


def name_of(step: int, checksum: str) -> str:
    """The name of the checkpoint after a step; ``checksum`` is the first 32 hex digits of its SHA-256."""
    return f"step-{step:010d}-{checksum}.pt"


def step_of(name: str) -> int | None:
    """The step in a file's name; None if it is no checkpoint's."""
    named = NAME.fullmatch(name)
    return None if named is None else int(named[1])


def checksum_of(name: str) -> str | None:
    """The checksum in a file's name; None if it is no checkpoint's."""
    named = NAME.fullmatch(name)
    return None if named is None else named[2]
