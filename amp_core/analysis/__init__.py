"""The analyses as a child process executes them; their options are in `amp_core.analyses`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from amp_core.analysis.batch_size import batch_size
from amp_core.analysis.layer_comparison import compare_layers
from amp_core.analysis.sensitivity import sensitivity
from amp_core.analysis.stress import stress
from amp_core.config import RunConfig
from amp_core.errors import AnalysisError
from amp_core.events import Event
from amp_core.workload import Workload

Analysis: TypeAlias = Callable[[RunConfig, Workload], Iterator[Event]]

ANALYSES: dict[str, Analysis] = {
    "sensitivity": sensitivity,
    "stress": stress,
    "layers": compare_layers,
    "batch-size": batch_size,
}


def analysis_of(kind: str) -> Analysis:
    """The analysis of a kind: it yields `Started`, `Progress` and `Report`s, and ends with `Finished`.

    Raises:
        AnalysisError: if this version has none of that kind.
    """
    if kind not in ANALYSES:
        raise AnalysisError(f"analysis kind={kind!r} is unknown to this worker: choose one of {', '.join(ANALYSES)}")
    return ANALYSES[kind]
