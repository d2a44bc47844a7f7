"""What each recipe cost besides quality: steps skipped, samples lost, and where its memory went."""

from __future__ import annotations

from statistics import median
from typing import Any

from server.pages.colours import Style
from server.pages.formats import as_float, number, percent, size

DRAWN_PARTS = (
    ("weights", "memory/weights_bytes", "weights"),
    ("gradients", "memory/gradients_bytes", "gradients"),
    ("optimizer", "memory/optimizer_bytes", "optimizer state"),
    ("activations", "memory/saved_for_backward_bytes", "saved for backward"),
)
COPIES = "memory/saved_weight_copies_bytes"
PEAKS = (("memory/allocated_bytes", "peak on the device"), ("memory/process_bytes", "peak of the process"))
TRAINED = ("baseline", "candidate")


def skips(experiment: dict[str, Any], styles: dict[str, Style]) -> list[dict[str, Any]]:
    """One row per recipe: steps made and skipped, samples seen and lost, over its runs that reported them."""
    rows = []
    for recipe in experiment["recipes"]:
        runs = _runs_of(experiment, recipe["name"])
        results = [run["result"] for run in runs if run.get("result")]
        made, skipped = (sum(int(one.get(key) or 0) for one in results) for key in ("steps", "skipped_steps"))
        seen, lost = (sum(int(one.get(key) or 0) for one in results) for key in ("samples", "lost_samples"))
        rows.append(
            {
                "recipe": recipe["name"],
                "style": styles[recipe["name"]],
                "runs": f"{len(results)} of {len(runs)}",
                "steps": number(made),
                "skipped": number(skipped),
                "skipped_share": percent(skipped / made, 2) if made else "–",
                "samples": number(seen),
                "lost": number(lost),
                "lost_share": percent(lost / seen, 2) if seen else "–",
                "tone": "caution" if seen and lost / seen > 0.01 else "",
                "known": bool(results),
            }
        )
    return rows


def memory(experiment: dict[str, Any], styles: dict[str, Style], emulated: set[str]) -> list[dict[str, Any]]:
    """One bar per recipe that was measured: its parts in bytes, medians over runs, all bars to one scale."""
    told = [_memory_of(experiment, recipe["name"], styles) for recipe in experiment["recipes"]]
    known = [one for one in told if one is not None and one["recipe"] not in emulated]
    longest = max((one["total"] for one in known), default=0.0)
    for one in known:
        at = 0.0
        for part in one["parts"]:
            part["x"], part["width"] = round(100 * at / longest, 2), round(100 * part["bytes"] / longest, 2)
            at += part["bytes"]
    return known


def _memory_of(experiment: dict[str, Any], name: str, styles: dict[str, Style]) -> dict[str, Any] | None:
    runs = _runs_of(experiment, name)
    parts: list[dict[str, Any]] = []
    for kind, series, label in DRAWN_PARTS:
        found = _median(runs, series, "last")
        if found is not None:
            parts.append({"kind": kind, "label": label, "bytes": found, "text": size(found)})
    total = sum(part["bytes"] for part in parts)
    if not total:
        return None
    copies = _median(runs, COPIES, "last")
    peaks = [f"{label} {size(found)}" for series, label in PEAKS if (found := _median(runs, series, "max")) is not None]
    return {
        "recipe": name,
        "style": styles[name],
        "parts": parts,
        "total": total,
        "total_text": size(total),
        "copies": f"of what is saved, {size(copies)} are copies of weights in the lower type" if copies else "",
        "peak": peaks[0] if peaks else "",
    }


def _runs_of(experiment: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [run for run in experiment["runs"] if run["recipe_name"] == name and run["role"] in TRAINED]


def _median(runs: list[dict[str, Any]], series: str, field: str) -> float | None:
    values = [as_float(run["metrics"].get(series, {}).get(field)) for run in runs]
    known = [value for value in values if value is not None]
    return median(known) if known else None
