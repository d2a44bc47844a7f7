"""The runs table of an experiment: one group per recipe with mean ± sd, range and difference, its runs below."""

from __future__ import annotations

import math
from typing import Any

from amp_core.verdict import sentences
from server.pages.colours import Style
from server.pages.formats import as_float, between, number
from server.pages.verdicts import primary_of
from server.runs.spread import deviation, mean

_ROLES = {"control": "A/A control", "benchmark": "Benchmarks", "analysis": "Analyses"}


def groups(experiment: dict[str, Any], styles: dict[str, Style], primary: dict[str, Any]) -> list[dict[str, Any]]:
    """Recipes in the experiment's order, then the control, then benchmarks."""
    metric = f"eval/{primary['metric']}"
    sorted_runs: dict[str, list[dict[str, Any]]] = {recipe["name"]: [] for recipe in experiment["recipes"]}
    for run in experiment["runs"]:
        key = _ROLES.get(run["role"], run["recipe_name"])
        sorted_runs.setdefault(key, []).append(run)
    baseline = _values(sorted_runs.get(experiment["baseline"], []), metric)
    return [
        _group(key, runs, styles.get(key), metric, baseline if key != experiment["baseline"] else {}, primary)
        for key, runs in sorted_runs.items()
        if runs
    ]


def _values(runs: list[dict[str, Any]], metric: str) -> dict[int, float]:
    """The last value of the primary metric of completed runs, by seed."""
    values = {}
    for run in runs:
        value = as_float(run["metrics"].get(metric, {}).get("last"))
        if run["state"] == "completed" and value is not None:
            values[run["seed"]] = value
    return values


def _group(
    title: str,
    runs: list[dict[str, Any]],
    style: Style | None,
    metric: str,
    baseline: dict[int, float],
    primary: dict[str, Any],
) -> dict[str, Any]:
    values = _values(runs, metric)
    finite = [value for value in values.values() if math.isfinite(value)]
    skipped = [run["result"]["skipped_steps"] for run in runs if run.get("result")]
    ended = sum(run["state"] not in ("queued", "running") for run in runs)
    return {
        "key": title,
        "title": title,
        "style": style,
        "num": len(runs),
        "counts": f"{ended} of {len(runs)} ended",
        "mean_text": _mean_text(finite),
        "range_text": f"{number(min(finite))} to {number(max(finite))}" if len(finite) > 1 else "",
        "skipped": number(sum(skipped)) if skipped and title not in ("Benchmarks", "Analyses") else "",
        "delta_text": _delta_text(values, baseline, primary),
        "non_finite": non_finite_of_group(runs),
        "runs": [_run(run, metric) for run in runs],
    }


def _mean_text(values: list[float]) -> str:
    if not values:
        return ""
    spread = deviation(values)
    return number(mean(values)) + ("" if spread is None else f" ± {number(spread, 2)}")


def _delta_text(values: dict[int, float], baseline: dict[int, float], primary: dict[str, Any]) -> str:
    """The mean difference over pairs of finite values, in the verdict's own words."""
    known = primary_of(primary)
    harms = []
    for seed, value in values.items():
        other = baseline.get(seed, math.nan)
        harm = (other - value if known.higher_is_better else value - other) / (abs(other) if known.relative else 1.0)
        if math.isfinite(harm):
            harms.append(harm)
    if not harms:
        return ""
    return f"Δ {sentences.signed(known, mean(harms))} over {len(harms)} pair{'s' if len(harms) != 1 else ''}"


def non_finite_text(metrics: dict[str, dict[str, Any]]) -> str:
    """``NaN in train/loss since step 700``: the earliest series that lost its finite values."""
    first: tuple[int, str, str] | None = None
    for name, summary in metrics.items():
        step = summary.get("first_non_finite_step")
        if step is None or name == "amp/loss_scale":
            continue
        kind = "NaN" if summary["num_nan"] else "∞"
        if first is None or step < first[0]:
            first = (step, name, kind)
    return f"{first[2]} in {first[1]} since step {first[0]}" if first else ""


def non_finite_of_group(runs: list[dict[str, Any]]) -> list[str]:
    """What each run of a group lost, equal ones together: ``NaN in train/loss since step 700 (seeds 1, 4)``."""
    seeds: dict[str, list[int]] = {}
    for run in runs:
        if text := non_finite_text(run["metrics"]):
            seeds.setdefault(text, []).append(run["seed"])
    if len(runs) == 1:
        return list(seeds)
    return [
        f"{text} (seed{'s' if len(found) > 1 else ''} {', '.join(map(str, found))})" for text, found in seeds.items()
    ]


def _run(run: dict[str, Any], metric: str) -> dict[str, Any]:
    reason = run["reason"] or {}
    is_training = run["kind"] == "train"
    label = f"seed {run['seed']}" if is_training else f"{run['recipe_name']}, {run['kind']}"
    return {
        **{key: run[key] for key in ("id", "state", "attempt", "numerics")},
        "step_text": f"{run['step']}/{run['steps']}" if is_training else "",
        "label": label,
        "primary": run["metrics"].get(metric, {}).get("last"),
        "loss": run["metrics"].get("train/loss", {}).get("last"),
        "skipped": (run.get("result") or {}).get("skipped_steps"),
        "non_finite": non_finite_text(run["metrics"]),
        "reason": reason.get("message"),
        "time": between(run["started_at"], run["ended_at"]) if run["started_at"] else "",
    }
