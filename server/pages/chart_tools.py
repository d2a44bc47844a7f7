"""What the charts of a page can be asked: the x axes its runs recorded, their series, recipes to compare with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from server.pages.formats import as_float, moment

AXES = (
    ("step", "step"),
    ("time", "time since start"),
    ("wall", "time of day"),
    ("samples", "samples"),
    ("tokens", "tokens"),
)
TOKENS, SAMPLES = "perf/tokens_per_s", "perf/samples_per_s"


def run_of_group(run: dict[str, Any], label: str) -> dict[str, Any]:
    """A run as the charts know it: where its points lie on each axis. Samples are those its result counted."""
    result = run.get("result") or {}
    samples, steps = as_float(result.get("samples")), as_float(result.get("steps"))
    each = samples / steps if samples and steps else None
    rates = [as_float(run["metrics"].get(name, {}).get("mean")) for name in (TOKENS, SAMPLES)]
    tokens = each * rates[0] / rates[1] if each and rates[0] and rates[1] else None
    begun = moment(run.get("started_at"))
    return {
        "id": run["id"],
        "label": label,
        "samples_per_step": each,
        "tokens_per_step": tokens,
        "started_at": begun.timestamp() if begun else None,
    }


def tools(
    runs: Iterable[dict[str, Any]],
    series: Collection[str],
    shown: Sequence[str],
    recipes: Sequence[str],
    pinnable: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (),
) -> dict[str, Any]:
    """The controls over the charts; ``shown`` are the values of ``show`` in the address.

    ``pinnable``: what every curve can be shown as a difference from, by heading: run numbers with commas and a label.
    """
    placed = [run_of_group(run, "") for run in runs]
    known = {
        "samples": any(run["samples_per_step"] for run in placed),
        "tokens": any(run["tokens_per_step"] for run in placed),
    }
    return {
        "axes": [{"value": value, "label": label, "known": known.get(value, True)} for value, label in AXES],
        "recipes": list(recipes),
        "pinnable": list(pinnable),
        "series": sorted(series),
        "shown": {name for word in shown for name in word.split(",")},
    }
