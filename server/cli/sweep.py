"""The ``--sweep`` options of ``ampboard submit``."""

from __future__ import annotations

import json
from typing import Any

import typer

from server.client import Json


def sweep_of(texts: list[str], draws: int | None, seed: int) -> Json:
    """``lr=0.1,0.01`` lists values, ``lr=0.001..0.1`` is a range, ``lr=0.001..0.1:log`` one on a logarithmic scale."""
    params = dict(_parameter(text) for text in texts)
    if draws is None:
        return {"method": "grid", "params": params}
    return {"method": "random", "params": params, "num": draws, "seed": seed}


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, values = text.partition("=")
    if not name or not equals or not values:
        raise typer.BadParameter(f"--sweep {text!r} must have the form NAME=VALUE,VALUE or NAME=MIN..MAX[:log]")
    if ".." in values:
        bounds, _, scale = values.partition(":")
        low, _, high = bounds.partition("..")
        if scale not in ("", "log"):
            raise typer.BadParameter(f"--sweep {text!r}: the scale of a range is log, or left out")
        try:
            return name, {"min": float(low), "max": float(high), "log": scale == "log"}
        except ValueError as error:
            raise typer.BadParameter(f"--sweep {text!r}: a range has two numbers, such as 0.001..0.1") from error
    return name, [_value(part.strip()) for part in values.split(",") if part.strip()]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
