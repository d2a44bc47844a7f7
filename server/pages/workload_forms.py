"""Workload descriptions as forms show them: parameters with their ranges, margins in words."""

from __future__ import annotations

from typing import Any

from amp_core.verdict import sentences
from amp_core.verdict.evidence import Primary
from server.pages.verdicts import primary_of


def margin_text(primary: dict[str, Any] | None) -> str:
    """``0.25 dB``, ``0.5 percentage points`` or ``1 % of the baseline``, as the verdict says it."""
    return sentences.margin_text(_primary(primary)) if primary else ""


def _primary(primary: dict[str, Any]) -> Primary:
    """A workload's declaration calls the metric ``name``."""
    return primary_of({"metric": primary["name"], **primary})


def margin_hint(primary: dict[str, Any]) -> str:
    """What the margin field takes."""
    if primary.get("relative"):
        return f"As a fraction of the baseline: {primary['margin']:g} is {margin_text(primary)}."
    return (
        f"In {primary['unit']}."
        if primary.get("unit")
        else f"In the metric's own unit: {primary['margin']:g} is {margin_text(primary)}."
    )


def parameter_hint(parameter: dict[str, Any]) -> str:
    """Help, type, range and default of a parameter in one line."""
    low, high = parameter.get("min"), parameter.get("max")
    limits = {
        (True, True): f"{low} to {high}",
        (True, False): f"at least {low}",
        (False, True): f"at most {high}",
        (False, False): "",
    }[(low is not None, high is not None)]
    kind = {"int": "whole number", "float": "number", "bool": "yes or no", "str": "text"}.get(parameter["type"], "")
    tail = ", ".join(part for part in (kind, limits, f"default {parameter['default']}") if part)
    return f"{parameter.get('help') or ''} ({tail})".strip()


def with_hints(workload: dict[str, Any]) -> dict[str, Any]:
    """The workload as the form of a new experiment shows it."""
    parameters = [
        {"choices": None, **parameter, "hint": parameter_hint(parameter)} for parameter in workload["parameters"]
    ]
    label = sentences.metric_label(workload["primary"]["name"])
    return {**workload, "parameters": parameters, "margin_hint": margin_hint(workload["primary"]), "metric": label}
