"""What an engine starts from: the worker's surroundings, or arguments and AMPBOARD_RECIPE."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_core.config import Recipe, RunConfig, WorkloadRef, parse_recipe
from amp_core.errors import RecipeError
from amp_core.script.sinks import EventPipe, Nowhere, Sink, Tracked
from amp_core.script.surroundings import ParentLine, surroundings
from amp_core.seeding import seed_everything
from amp_core.tracking.run import TrackedRun

RECIPE = "AMPBOARD_RECIPE"  # a precision, or a recipe as JSON


@dataclass(frozen=True, kw_only=True)
class Start:
    """A configuration, where events go, and the line to the parent process if there is one."""

    config: RunConfig
    sink: Sink
    line: ParentLine | None = None
    is_process_wide: bool = False


def begin(
    recipe: str | dict[str, Any] | None,
    seed: int | None,
    device: str | None,
    track: TrackedRun | None,
    checkpoint_dir: str | None,
) -> Start:
    """See `amp_core.script.engine.Engine.from_env`."""
    found = surroundings()
    if found is not None:
        seed_everything(found.config.seed)
        _set_threads(found.config.num_threads)
        sink = EventPipe(found.events)
        return Start(config=found.config, sink=sink, line=ParentLine(found.line), is_process_wide=True)
    if seed is not None:
        seed_everything(seed)
    script = sys.argv[0] or "script"
    config = RunConfig(
        run_id=0,
        attempt=1,
        workload=WorkloadRef(name=Path(script).stem, path=script),
        recipe=_recipe(recipe),
        seed=seed or 0,
        steps=0,
        device=device or "auto",
        checkpoint_dir=checkpoint_dir,
        resume_from=_newest(checkpoint_dir),
    )
    if track is not None:
        return Start(config=config, sink=Tracked(track), is_process_wide=True)
    return Start(config=config, sink=Nowhere())


def _recipe(given: str | dict[str, Any] | None) -> Recipe:
    """The argument, else AMPBOARD_RECIPE, else 32-true. Raises `RecipeError`."""
    if given is not None:
        return parse_recipe(given)
    named = os.environ.get(RECIPE, "").strip() or "32-true"
    if not named.startswith("{"):
        return parse_recipe(named)
    try:
        return parse_recipe(json.loads(named))
    except json.JSONDecodeError as error:
        raise RecipeError(f"{RECIPE} is no JSON object: {error}; give a precision such as bf16-mixed") from error


def _newest(folder: str | None) -> tuple[str, ...]:
    """The checkpoints in a folder, the newest first."""
    if folder is None or not Path(folder).is_dir():
        return ()
    files = sorted(Path(folder).glob("step-*.pt"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return tuple(map(str, files))


def _set_threads(num_threads: int | None) -> None:
    import torch

    if num_threads is not None:
        torch.set_num_threads(num_threads)
