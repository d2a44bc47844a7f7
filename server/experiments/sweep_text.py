"""Sweeps as people type them, in the form and after ``ampboard submit --sweep``."""

from __future__ import annotations

import json
from typing import Any


def sweep_of(texts: list[str], draws: int | None, seed: int = 0) -> dict[str, Any]:
    """``lr=0.1,0.01`` lists values, ``lr=0.001..0.1`` is a range, ``lr=0.001..0.1:log`` one on a logarithmic scale.

    Raises `ValueError` with the form that is expected.
    """
    params = dict(_parameter(text) for text in texts)
    if draws is None:
        return {"method": "grid", "params": params}
    return {"method": "random", "params": params, "num": draws, "seed": seed}


def _parameter(text: str) -> tuple[str, Any]:
    name, equals, values = text.partition("=")
    if not name or not equals or not values:
        raise ValueError(f"{text!r} must have the form NAME=VALUE,VALUE or NAME=MIN..MAX[:log]")
    if ".." in values:
        bounds, _, scale = values.partition(":")
        low, _, high = bounds.partition("..")
        if scale not in ("", "log"):
            raise ValueError(f"{text!r}: the scale of a range is log, or left out")
        try:
            return name, {"min": float(low), "max": float(high), "log": scale == "log"}
        except ValueError as error:
            raise ValueError(f"{text!r}: a range has two numbers, such as 0.001..0.1") from error
    return name, [_value(part.strip()) for part in values.split(",") if part.strip()]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def sweep_text(sweep: dict[str, Any]) -> list[str]:
    """The texts that `sweep_of` reads as this sweep's parameters."""
    texts = []
    for name, values in sweep["params"].items():
        if isinstance(values, list):
            spelled = [value if isinstance(value, str) else json.dumps(value) for value in values]
            texts.append(f"{name}={','.join(spelled)}")
        else:
            texts.append(f"{name}={values['min']:g}..{values['max']:g}{':log' if values.get('log') else ''}")
    return texts
