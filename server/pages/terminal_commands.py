"""A submission as people type it in a terminal."""

from __future__ import annotations

import json
import shlex
from typing import Any

from amp_core.config import ALIASES
from server.experiments.sweep_text import sweep_text

_SHORT: dict[str, str] = {full: alias for alias, full in reversed(ALIASES.items())}
_NOT_IN_CLI = ("eval_every", "priority", "note")


def curl_of(submission: dict[str, Any], base_url: str) -> str:
    """The submission by curl; the token comes from the environment, never from the page."""
    fields = [f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in submission.items()]
    body = "{\n" + ",\n".join(fields) + "\n}"
    noun = "sweeps" if "sweep" in submission else "experiments"
    return (
        f"curl {shlex.quote(base_url.rstrip('/') + f'/api/v1/{noun}')} \\\n"
        '  -H "Authorization: Bearer $AMPBOARD_TOKEN" \\\n'
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d {shlex.quote(body)}"
    )


def cli_of(submission: dict[str, Any]) -> str:
    """The submission by `ampboard submit`; what that command has no option for is said in a comment."""
    parts = [f"ampboard submit {shlex.quote(str(submission['workload']))}"]
    if submission.get("name"):
        parts.append(f"--name {shlex.quote(str(submission['name']))}")
    parts += [f"-r {shlex.quote(_recipe(recipe))}" for recipe in submission.get("recipes", [])]
    parts += [f"-p {shlex.quote(f'{name}={_value(value)}')}" for name, value in submission.get("params", {}).items()]
    seeds = submission.get("seeds")
    if seeds is not None:
        parts.append(f"--seeds {shlex.quote(','.join(map(str, seeds)) if isinstance(seeds, list) else str(seeds))}")
    for field in ("steps", "device", "ranks", "hosts", "strategy", "baseline"):
        if submission.get(field) is not None:
            parts.append(f"--{field} {shlex.quote(str(submission[field]))}")
    if (fork := submission.get("fork")) is not None:
        begins = f"{fork.get('run', 'RUN')}@{fork.get('step', 'last')}"
        parts.append(f"--fork {shlex.quote(begins)} --horizon {shlex.quote(str(fork.get('horizon', 'N')))}")
    if (kept := submission.get("keep_checkpoints")) is not None:
        parts.append(f"--keep-checkpoints {kept if isinstance(kept, str) else ','.join(map(str, kept))}")
    if (submission.get("primary") or {}).get("margin") is not None:
        parts.append(f"--margin {submission['primary']['margin']}")
    for field, option in (("control", "control"), ("measure_gain", "gain")):
        if field in submission:
            parts.append(f"--{option}" if submission[field] else f"--no-{option}")
    parts += [f"--tag {shlex.quote(str(tag))}" for tag in submission.get("tags", [])]
    if (sweep := submission.get("sweep")) is not None:
        parts += [f"--sweep {shlex.quote(text)}" for text in sweep_text(sweep)]
        parts += [f"--draws {sweep['num']}"] if sweep.get("num") else []
    command = " \\\n  ".join(parts)
    missing = [field for field in _NOT_IN_CLI if submission.get(field)]
    return command + (f"\n# {', '.join(missing)}: only by curl" if missing else "")


def _recipe(recipe: str | dict[str, Any]) -> str:
    if isinstance(recipe, str):
        return _SHORT.get(recipe, recipe)
    if set(recipe) == {"precision", "scaler"} and set(recipe["scaler"]) == {"kind"}:
        precision = str(recipe["precision"])
        return f"{_SHORT.get(precision, precision)}:{recipe['scaler']['kind']}"
    return json.dumps(recipe)


def _value(value: Any) -> str:
    return json.dumps(value) if not isinstance(value, str) else value
