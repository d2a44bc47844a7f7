"""From a comparison to verdict cards and scorecard rows: the words and figures of the experiment page."""

from __future__ import annotations

import json
import math
from typing import Any

from amp_core.verdict import sentences
from amp_core.verdict.evidence import Primary
from server.pages.colours import Style
from server.pages.formats import as_float, number, percent, size
from server.pages.whisker import Difference, Scale, draw

EMULATED_GAIN = "not measured here (emulated)"


def primary_of(told: dict[str, Any]) -> Primary:
    """The primary metric of a comparison or a plan, as the verdict's own sentences take it."""
    fields = ("metric", "higher_is_better", "margin", "relative", "unit")
    return Primary(**{field: told[field] for field in fields if field in told})


def cards(comparison: dict[str, Any], styles: dict[str, Style]) -> list[dict[str, Any]]:
    """One card per candidate, in the order of the experiment, with its scorecard row."""
    primary = primary_of(comparison["primary"])
    differences = {item["recipe"]: _difference(item["quality"]) for item in comparison["recipes"]}
    known = [difference for difference in differences.values() if difference is not None]
    margin = next((as_float(item["quality"]["margin"]) for item in comparison["recipes"] if item["quality"]), None)
    scale = Scale(margin, known) if margin and known else None
    return [
        _card(item, styles[item["recipe"]], differences[item["recipe"]], scale, primary)
        for item in comparison["recipes"]
    ]


def _card(
    item: dict[str, Any], style: Style, difference: Difference | None, scale: Scale | None, primary: Primary
) -> dict[str, Any]:
    quality, gain = item["quality"], item["gain"]
    text = _quality_text(quality, primary)
    emulated = item["numerics"] == "emulated"
    return {
        "recipe": item["recipe"],
        "style": style,
        "verdict": item["verdict"],
        "numerics": item["numerics"],
        "sentence": item["sentence"],
        "points": _points(item),
        "steps": _next_steps(item),
        "why": item.get("why", ""),
        "divergence": (item.get("divergence") or {}).get("sentence", ""),
        "gain": gain["sentence"],
        "gain_why": gain.get("why", ""),
        "gain_measured": gain["measured"],
        "whisker": draw(scale, difference, f"{item['recipe']}: {text}") if scale and difference else None,
        "quality_text": text,
        "mean": quality["candidate_mean"] if quality else None,
        "pairs_text": f"{quality['num_pairs']} of {quality['num_planned']} pairs" if quality else "",
        "speed": _speed(gain.get("speed"), gain.get("against_tf32")),
        "memory": _memory(gain.get("memory")),
        "gain_absent": EMULATED_GAIN if emulated else "not measured",
        "stability": _stability(item),
        "stability_notes": _stability_notes(item),
    }


def first_step(cards: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The one thing to do next: what settles an open recipe, else the cure of a bad one; None when nothing is open."""
    for verdict in ("INCONCLUSIVE", "UNSAFE"):
        for card in cards:
            if card["verdict"] == verdict and card["steps"]:
                return {"recipe": card["recipe"], **card["steps"][0]}
    return None


def _difference(quality: dict[str, Any] | None) -> Difference | None:
    """Harm turned round, so that positive is better."""
    mean = as_float(quality["mean_harm"]) if quality else None
    if quality is None or mean is None:
        return None
    interval = None
    if quality["interval"]:
        low, high = (as_float(end) for end in quality["interval"])
        interval = (-high, -low) if low is not None and high is not None else None
    seeds = [-harm for pair in quality["pairs"] if (harm := as_float(pair["harm"])) is not None]
    return Difference(mean=-mean, interval=interval, seeds=seeds)


def _quality_text(quality: dict[str, Any] | None, primary: Primary) -> str:
    """``−0.03 dB (−0.10 to +0.05 dB)``, in the words and decimals of the verdict itself."""
    mean = as_float(quality["mean_harm"]) if quality else None
    if quality is None or mean is None:
        return ""
    if not quality["interval"]:
        return f"{sentences.signed(primary, mean)}, no interval yet"
    low, high = (float(end) for end in quality["interval"])
    return f"{sentences.signed(primary, mean)} ({sentences.signed_interval(primary, low, high)})"


def _points(item: dict[str, Any]) -> list[dict[str, str]]:
    """Reasons and findings, the grave ones first, no sentence twice."""
    found = [*item["reasons"], *item["findings"]]
    order = {"fatal": 0, "caution": 1, "info": 2}
    seen: set[str] = set()
    points = []
    for point in sorted(found, key=lambda point: order.get(point["severity"], 3)):
        if point["sentence"] not in seen and point["sentence"] not in item["sentence"]:
            seen.add(point["sentence"])
            points.append({"severity": point["severity"], "sentence": point["sentence"]})
    return points[:5]


_LABELS = {"run_cure": "Run the cure"}


def _next_steps(item: dict[str, Any]) -> list[dict[str, str]]:
    """What to press: the cure of a finding, more seeds."""
    step = item["next_step"]
    if not step:
        return []
    label = _LABELS.get(step.get("action") or "", "Run it")
    if step.get("action") == "more_seeds":
        label = f"Run {step['num_seeds']} more seeds" if step.get("num_seeds") else "Run more seeds"
    submission = json.dumps(step["submission"]) if step.get("submission") else ""
    return [{"sentence": step["sentence"], "label": label, "submission": submission}]


def _speed(speed: dict[str, Any] | None, against: dict[str, Any] | None) -> dict[str, str] | None:
    if not speed:
        return None
    low, high = (float(end) for end in speed["interval"])
    pace = "faster" if low > 1 else "slower" if high < 1 else "no clear difference"
    detail = f"{pace} [{number(low, 3)}, {number(high, 3)}], {speed['num_blocks']} blocks"
    if against:
        less, more = (number(float(end), 3) for end in against["interval"])
        detail += f"; {number(against['ratio'], 3)}× {against['recipe']} [{less}, {more}]"
    return {"text": f"{number(speed['ratio'], 3)}×", "detail": detail}


def _memory(memory: dict[str, Any] | None) -> dict[str, str] | None:
    if not memory:
        return None
    for field, words in (
        ("device_peak", "peak on the device"),
        ("saved_for_backward", "saved for backward"),
        ("process_growth", "growth of the process"),
    ):
        ratio = as_float(memory.get(f"{field}_ratio"))
        if ratio is not None and math.isfinite(ratio):
            before, after = memory[f"baseline_{field}_bytes"], memory[f"candidate_{field}_bytes"]
            return {"text": f"{number(ratio, 2)}×", "detail": f"{words}: {size(before)} → {size(after)}"}
    return None


def _stability(item: dict[str, Any]) -> str:
    worst = {finding["severity"] for finding in item["findings"]}
    if "fatal" in worst:
        return "failure found"
    if "caution" in worst:
        return "with caution"
    return "no finding" if item["quality"] and item["quality"]["num_pairs"] else "–"


def _stability_notes(item: dict[str, Any]) -> list[str]:
    notes = []
    if item["skipped_steps"]:
        notes.append(f"{item['skipped_steps']} skipped steps, {percent(item['lost_samples_fraction'])} of samples lost")
    return notes
