"""``python -m amp_core check FILE``: `amp_core.check` for the workloads of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

from torch import nn

from amp_core.checking import Check, check
from amp_core.config import WorkloadRef
from amp_core.errors import AmpError
from amp_core.loader import describe, load
from amp_core.seeding import seed_everything, stream_seed
from amp_core.workload import Workload

SOUND, FOUND, FAILED = 0, 1, 2
NUM_EVAL_BATCHES = 4


def run(path: Path, recipes: Sequence[str], steps: int, seed: int, as_json: bool) -> int:
    """Check every workload of a file; print Markdown or JSON. Exit code 0 sound, 1 something found, 2 not runnable."""
    results: dict[str, Check] = {}
    for known in describe(path):
        if known["error"] is not None:
            sys.stderr.write(f"{path}: {known['error']}\n")
            return FAILED
        try:
            workload = load(WorkloadRef(name=known["name"], path=str(path)))
            results[known["name"]] = _check(workload, path, recipes, steps, seed)
        except AmpError as error:
            sys.stderr.write(f"{path}: {error}\n")
            return FAILED
    if as_json:
        sys.stdout.write(json.dumps({name: found.to_json() for name, found in results.items()}, indent=1) + "\n")
    else:
        sys.stdout.write("\n\n".join(f"{name}\n\n{found}" for name, found in results.items()) + "\n")
    return SOUND if all(found.sound for found in results.values()) else FOUND


def _check(workload: Workload, path: Path, recipes: Sequence[str], steps: int, seed: int) -> Check:
    def model() -> nn.Module:
        seed_everything(seed)
        return workload.model()

    return check(
        model,
        islice(_epochs(workload, seed), steps),
        workload.loss,
        [_given(recipe) for recipe in recipes],
        optimizer=workload.optimizer,
        eval_batches=islice(workload.batches("eval", seed), NUM_EVAL_BATCHES),
        source=path,
        seed=seed,
    )


def _epochs(workload: Workload, seed: int) -> Iterator[Any]:
    """Training batches, epoch after epoch; ends with the first epoch that has none."""
    for epoch in count():
        empty = True
        for batch in workload.batches("train", stream_seed(seed, "data", epoch)):
            empty = False
            yield batch
        if empty:
            return


def _given(recipe: str) -> str | dict[str, Any]:
    """A recipe as typed: a name, or a JSON object."""
    if not recipe.lstrip().startswith("{"):
        return recipe
    read: dict[str, Any] = json.loads(recipe)
    return read
