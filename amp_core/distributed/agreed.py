"""One checkpoint for all ranks, wherever it lies: hosts that do not have the file get it from one that has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from amp_core.checkpoints import load_first, loaded
from amp_core.distributed.group import Ranks
from amp_core.errors import NotResumable


def load_agreed(paths: Sequence[str], ranks: Ranks) -> tuple[dict[str, Any] | None, list[str]]:
    """The state in the first of these files that any rank finds whole, on all ranks, and why others were passed over.

    A collective; every rank is given the same names in the same order. None on all ranks if no rank has any of them.
    """
    if not paths:
        return None, []
    state, refused = load_first(paths)
    found = len(paths) if state is None else len(refused)
    everywhere = [int(place) for place in ranks.gathered(found)]
    best = min(everywhere)
    if best == len(paths):
        return None, refused
    if max(everywhere) > best:
        source, path = everywhere.index(best), Path(paths[best])
        content = ranks.from_rank(source, path.read_bytes() if ranks.rank == source else b"")
        if found != best:
            try:
                state = loaded(content, path.name)
            except NotResumable as error:  # of another version, say: then no rank goes on from it
                state, refused = None, [*refused[:best], str(error)]
        if ranks.any(state is None):
            return None, refused
    return state, refused[:best]
