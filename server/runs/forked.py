"""What the steps of runs count: those of a fork begin at its checkpoint, and every axis says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def step_title(fork: Mapping[str, Any] | None) -> str:
    """The title of an axis of steps; those of a fork count from its checkpoint."""
    if not fork:
        return "step"
    place = " of another database" if fork.get("elsewhere") else ""
    return f"steps after step {fork['step']:,} of run {fork['run']}{place}"


def step_title_of(configs: Sequence[Mapping[str, Any]]) -> str:
    """The same for several runs, by their configurations."""
    titles = {step_title(config.get("fork")) for config in configs} or {"step"}
    return titles.pop() if len(titles) == 1 else "step; of forks: after the fork"
