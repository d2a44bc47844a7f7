"""From a workload file to its class, its instance, or its description. Loading a file runs its code."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from amp_core.config import WorkloadRef, parse_recipe
from amp_core.errors import RecipeError, WorkloadError
from amp_core.parameters import Parameter
from amp_core.script import sources
from amp_core.script.workload import ScriptWorkload
from amp_core.workload import Workload


def load(ref: WorkloadRef) -> Workload:
    """The workload a run names, with its parameters.

    Raises:
        WorkloadError: if the file cannot be imported, defines no such workload, or refuses the parameters.
    """
    path = Path(ref.path)
    found = _workload_classes(path)
    if ref.name not in found:
        raise WorkloadError(f"{path.name} defines no workload {ref.name!r}: it defines {', '.join(sorted(found))}")
    return found[ref.name](**ref.params)


def describe(path: Path) -> list[dict[str, Any]]:
    """A description of each workload in a file; of a broken file or class, one with its ``error``."""
    try:
        source_hash = sources.source_hash(path)
        defines_some = b"Workload" in path.read_bytes()
    except OSError as error:
        return [_broken(path, "", f"{path.name} cannot be read: {error.strerror or error}")]
    if not defines_some:  # a training script, for example: importing it would run it
        return [_broken(path, source_hash, f"{_no_workload(path)} (not imported: it never says Workload)")]
    try:
        found = _workload_classes(path)
    except WorkloadError as error:
        return [_broken(path, source_hash, str(error))]
    return [_describe_class(path, source_hash, name, found[name]) for name in sorted(found)]


def print_descriptions(paths: Sequence[Path]) -> int:
    """Print one JSON line for each workload; what the files themselves print goes to stderr."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with output:
        for path in paths:
            for description in describe(path):
                output.write(json.dumps(description) + "\n")
            output.flush()
    return 0


def _workload_classes(path: Path) -> dict[str, type[Workload]]:
    """The workloads a file defines, by name. Raises `WorkloadError`."""
    module = _import(path)
    found: dict[str, type[Workload]] = {}
    for value in vars(module).values():
        if not (isinstance(value, type) and issubclass(value, Workload) and value.__module__ == module.__name__):
            continue
        if value.is_base():
            continue  # a base for the workloads of this file
        if found.setdefault(value.name, value) is not value:
            raise WorkloadError(
                f"{path.name} defines two workloads named {value.name!r} ({found[value.name].__name__} and "
                f"{value.__name__}): give one of them another name"
            )
    if not found:
        raise WorkloadError(_no_workload(path))
    return found


def _no_workload(path: Path) -> str:
    return f"{path.name} defines no workload: write a subclass of amp_core.Workload with model() and batches()"


def _import(path: Path) -> ModuleType:
    """Import a file under a name of its own; modules beside it can be imported too. Raises `WorkloadError`."""
    path = path.resolve()
    if not path.is_file():
        raise WorkloadError(f"workload file {path} does not exist: check the path and the workload folders")
    name = f"ampboard_workload_{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # at the end, so that a file of the folder cannot hide a library
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"workload file {path.name} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except WorkloadError as error:
        raise WorkloadError(f"{_place(error, path)}: {error}") from error
    except (Exception, SystemExit) as error:
        text = f": {error}" if str(error) else ""
        raise WorkloadError(f"{_place(error, path)} raises {type(error).__name__}{text}") from error
    return module


def _place(error: BaseException, path: Path) -> str:
    """``file.py line 12``, the innermost line of the workload file itself that an exception passed."""
    if isinstance(error, SyntaxError) and error.filename == str(path) and error.lineno:
        return f"{path.name} line {error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path.name} line {lines[-1]}" if lines else path.name


def _describe_class(path: Path, source_hash: str, name: str, found: type[Workload]) -> dict[str, Any]:
    try:
        _check(found)
        metric = found.primary
        description = {
            "title": found.title,
            "summary": found.summary,
            "steps": found.steps,
            "recipes": list(found.recipes),
            "primary": {
                "name": metric.name,
                "higher_is_better": metric.higher_is_better,
                "margin": metric.margin,
                "relative": metric.relative,
                "unit": metric.unit,
                "resolution": metric.resolution,
            },
            "is_script": issubclass(found, ScriptWorkload),
            "may_schedule": found.schedule is not Workload.schedule,
            "parameters": [_describe_parameter(parameter) for parameter in found.parameters()],
        }
        json.dumps(description)
    except Exception as error:  # noqa: BLE001 - a broken workload is listed with its error and stops nothing
        known = isinstance(error, WorkloadError | RecipeError)
        return _broken(path, source_hash, str(error) if known else f"{type(error).__name__}: {error}", name)
    return {"path": str(path), "name": name, "source_hash": source_hash, **description, "error": None}


def _check(found: type[Workload]) -> None:
    """Raise for a class that could not run with its defaults."""
    found.check_definition()
    if isinstance(found.steps, bool) or not isinstance(found.steps, int) or found.steps < 1:
        raise WorkloadError(f"steps={found.steps!r} of {found.__name__} must be a whole number of at least 1")
    if not found.recipes:
        raise WorkloadError(f"recipes of {found.__name__} is empty: list at least '32-true'")
    for recipe in found.recipes:
        parse_recipe(recipe)
    found()


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.type,
        "default": parameter.default,
        "min": parameter.minimum,
        "max": parameter.maximum,
        "choices": None if parameter.choices is None else list(parameter.choices),
        "help": parameter.help,
    }


def _broken(path: Path, source_hash: str, error: str, name: str | None = None) -> dict[str, Any]:
    return {
        "path": str(path),
        "name": name or path.stem.replace("_", "-"),
        "source_hash": source_hash,
        "title": (name or path.stem).replace("_", " "),
        "summary": "",
        "steps": 0,
        "recipes": [],
        "primary": None,
        "parameters": [],
        "error": error,
    }
