"""``python -m amp_core check FILE``: `amp_core.check` for the workloads of a file."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
from torch import nn

from amp_core.check_verdict import verdict_of
from amp_core.checking import Check, check
from amp_core.config import WorkloadRef, parse_recipe
from amp_core.errors import AmpError
from amp_core.forensics.loop_watch import watch_script
from amp_core.lint import Severity, lint_file
from amp_core.loader import describe, load
from amp_core.seeding import seed_everything, stream_seed
from amp_core.workload import Workload

SOUND, FOUND, FAILED = 0, 1, 2
VERDICT_CODES = {"SAFE": 0, "SAFE WITH CAUTION": 10, "INCONCLUSIVE": 11, "UNSAFE": 12}  # as of ``ampboard compare``
NOT_JUDGED = 13
NUM_EVAL_BATCHES = 4


def run(
    path: Path, recipes: Sequence[str], steps: int, seed: int, num_seeds: int, *, as_json: bool, exit_code: bool
) -> int:
    """Check every workload of a file; print Markdown or JSON.

    A file without workloads runs as a script under watch. Exit code 0 sound, 1 something found or UNSAFE, 2 not
    runnable; with ``exit_code`` a sound check ends with the code of its worst verdict instead.
    """
    results: dict[str, Check] = {}
    if _is_script(path):
        return _run_script(path, as_json)
    for known in describe(path):
        if known["error"] is not None:
            sys.stderr.write(f"{path}: {known['error']}\n")
            return FAILED
        try:
            workload = load(WorkloadRef(name=known["name"], path=str(path)))
            found = _check(workload, path, recipes, steps, seed)
            if num_seeds:
                parsed = [parse_recipe(_given(recipe)) for recipe in recipes]
                comparison = verdict_of(workload, path, parsed, range(seed, seed + num_seeds), steps)
                found = replace(found, comparison=comparison)
            results[known["name"]] = found
        except AmpError as error:
            sys.stderr.write(f"{path}: {error}\n")
            return FAILED
    if as_json:
        sys.stdout.write(json.dumps({name: found.to_json() for name, found in results.items()}, indent=1) + "\n")
    else:
        sys.stdout.write("\n\n".join(f"{name}\n\n{found}" for name, found in results.items()) + "\n")
    if not all(found.sound for found in results.values()):
        return FOUND
    verdicts = [verdict for found in results.values() for verdict in found.verdicts.values()]
    return (
        max((VERDICT_CODES.get(verdict or "", NOT_JUDGED) for verdict in verdicts), default=SOUND)
        if exit_code
        else SOUND
    )


def _is_script(path: Path) -> bool:
    """Whether a file derives no class from a workload, as far as its source shows; it is not imported for that."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False  # the loader says what is wrong with it
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return not any("Workload" in ast.unparse(base) for node in classes for base in node.bases)


def _run_script(path: Path, as_json: bool) -> int:
    """A file with a loop of its own: run it as a script and say what was seen."""
    findings, error = watch_script(path)
    linted = lint_file(path)
    told = {"error": error, "loop": [msgspec.to_builtins(f) for f in findings]}
    lint = [{"line": f.line, "code": f.code, "message": f.message} for f in linted]
    if as_json:
        sys.stdout.write(json.dumps({**told, "lint": lint}, indent=1) + "\n")
    else:
        lines = [f"- {f.kind}: {f.sentence} {f.fix}" for f in findings]
        lines += [f"- {f.path}:{f.line} {f.code} {f.message}" for f in linted]
        sys.stdout.write("\n".join([f"# {path.name}, run as a script", "", *(lines or ["Nothing found."])]) + "\n")
    if error:
        sys.stderr.write(f"{path}: {error}\n")
        return FAILED
    is_grave = any(f.kind != "speed" for f in findings) or any(f.severity >= Severity.WARNING for f in linted)
    return FOUND if is_grave else SOUND


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
