"""Track a run from your own script: ``run = tracking.init(…)``, ``run.log({"loss": 0.3})``, ``run.finish()``.

`log` appends to memory and returns in microseconds; a thread sends. Nothing here imports torch, and nothing that goes
wrong with the server reaches the training: what cannot be sent waits, and is told of at the end.

The server's address and token come from AMPBOARD_URL and AMPBOARD_TOKEN, else from the data folder of a local
``ampboard up``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amp_core.tracking.connection import TrackingError
from amp_core.tracking.run import TrackedRun, begin

__all__ = ["TrackedRun", "TrackingError", "finish", "init", "log"]

_current: TrackedRun | None = None


def init(
    name: str = "tracked run",
    *,
    project: str = "default",
    experiment: str | None = None,
    recipe: str | dict[str, Any] = "32-true",
    workload: str = "tracked",
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    tags: list[str] | None = None,
    steps: int = 0,
    url: str | None = None,
    token: str | None = None,
) -> TrackedRun:
    """Begin a run and make it the one that `log` and `finish` mean.

    Runs that name the same ``experiment`` are shown together; ``config`` holds what you want to find it by. Raises
    `TrackingError` when no server takes it.
    """
    global _current  # noqa: PLW0603 - a script has one run at hand, as in every tracker
    body = {
        "name": name, "project": project, "experiment": experiment, "recipe": recipe, "workload": workload,
        "seed": seed, "params": dict(config or {}), "tags": tags or [], "steps": steps,
    }  # fmt: skip
    _current = begin(body, url, token)
    return _current


def log(metrics: Mapping[str, Any], step: int | None = None) -> None:
    """See `TrackedRun.log`. Raises `TrackingError` before `init`."""
    _run().log(metrics, step)


def finish() -> None:
    """See `TrackedRun.finish`. Raises `TrackingError` before `init`."""
    _run().finish()


def _run() -> TrackedRun:
    if _current is None:
        raise TrackingError("no run has begun: call amp_core.tracking.init() first")
    return _current
