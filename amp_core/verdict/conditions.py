"""What is said with every verdict: the conditions it was reached under, and what it therefore does not say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amp_core.config import Recipe
from amp_core.verdict import segment, sentences
from amp_core.verdict.comparison import Control
from amp_core.verdict.evidence import ExperimentEvidence, RunEvidence

_FROM_ENVIRONMENT = ("torch", "python", "platform", "num_threads")


def conditions_of(evidence: ExperimentEvidence) -> dict[str, Any]:
    """Horizon, device, torch build, threads, numerics, what pairs are matched on, and whether growth was exercised."""
    environments = [run.environment for run in evidence.runs if run.environment]
    first = environments[0] if environments else {}
    conditions: dict[str, Any] = {
        "workload": evidence.workload,
        "steps": evidence.steps,
        "forked_from": f"step {evidence.fork.step:,} of run {evidence.fork.run_id}" if evidence.fork else None,
        "num_seeds": len(evidence.seeds),
        "seeds": list(evidence.seeds),
        "device": evidence.device,
        "numerics": _numerics(evidence),
        "matched_on": "samples",
        "growth_exercised": growth_exercised(evidence),
        "growth_interval": _growth_interval(evidence),
        "restarted_runs": sum(run.attempt > 1 for run in evidence.runs),
    }
    for key in _FROM_ENVIRONMENT:
        conditions[key] = first.get(key)
    conditions["device_name"] = _device_name(first)
    conditions["tf32"] = (first.get("flags") or {}).get("tf32")
    conditions["same_environment"] = not differing_conditions(evidence)
    return conditions


def _numerics(evidence: ExperimentEvidence) -> str | None:
    kinds = sorted({run.numerics for run in evidence.runs if run.numerics})
    if not kinds:
        return None
    return kinds[0] if len(kinds) == 1 else "mixed"


def _growth_interval(evidence: ExperimentEvidence) -> int | None:
    intervals = [
        recipe.scaler.growth_interval
        for recipe in evidence.candidates
        if recipe.scaler is not None and recipe.scaler.kind == "dynamic"
    ]
    return max(intervals) if intervals else None


def growth_exercised(evidence: ExperimentEvidence) -> bool | None:
    """Whether every dynamic loss scale had a chance to grow; None where no recipe has one."""
    interval = _growth_interval(evidence)
    return None if interval is None else evidence.steps >= interval


def differing_conditions(evidence: ExperimentEvidence) -> list[str]:
    """Which of torch, device and threads differ between the runs of this experiment."""
    compared: tuple[RunEvidence, ...] = (*evidence.runs, *evidence.control_runs)
    differing = []
    environments = [run.environment for run in compared if run.environment]
    for words, values in (
        ("torch builds", {environment.get("torch") for environment in environments}),
        ("devices", {_device_name(environment) for environment in environments}),
        ("numbers of threads", {environment.get("num_threads") for environment in environments}),
    ):
        if len(values) > 1:
            differing.append(words)
    return differing


def _device_name(environment: dict[str, Any]) -> str | None:
    device = environment.get("device")
    return device.get("name") if isinstance(device, dict) else None


def emulated_formats(recipes: Iterable[Recipe]) -> str:
    """``fp16``, ``fp8`` or both: whose arithmetic emulated recipes imitate."""
    return " and ".join(sorted({"fp8" if one.precision == "fp8-mixed" else "fp16" for one in recipes}))


def _host(device: str) -> str:
    return "a GPU without it" if device.startswith("cuda") else "a CPU"


def caveats_of(evidence: ExperimentEvidence, control: Control | None) -> list[str]:
    """Plain sentences about what the verdict does not cover."""
    caveats = [segment.validity(evidence)]
    emulated = [
        recipe
        for recipe in evidence.candidates
        if any(run.numerics == "emulated" for run in evidence.runs_of(recipe.name).values())
    ]
    if emulated:
        caveats.append(
            f"{sentences.recipe_listing([one.name for one in emulated])} ran with {emulated_formats(emulated)} "
            f"emulated on {_host(evidence.device)}: that usually predicts a GPU's range faults, it is not the GPU's "
            "result, and it has no speed or memory figures."
        )
    if growth_exercised(evidence) is False:
        caveats.append(
            f"Growth of the loss scale was not exercised: it needs {_growth_interval(evidence):,} clean steps in a row."
        )
    if evidence.baseline.precision != "32-true":
        caveats.append(f"The baseline is {evidence.baseline.name}, not FP32: its own faults count as normal here.")
    caveats += _caveats_of_pairing(evidence, control)
    return caveats


def _caveats_of_pairing(evidence: ExperimentEvidence, control: Control | None) -> list[str]:
    caveats = []
    differing = differing_conditions(evidence)
    if differing:
        caveats.append(f"Runs had different {sentences.listing(differing)}: part of any difference may come from that.")
    restarted = sum(run.attempt > 1 for run in evidence.runs)
    if restarted:
        caveats.append(f"{sentences.count(restarted, 'run')} began again after an interruption, from the first step.")
    if control is None:
        caveats.append("No A/A control was run: what no difference looks like here is not known.")
    elif control.passes is None and evidence.has_ended:
        caveats.append("The A/A control is incomplete: what no difference looks like here is not known.")
    if any(recipe.scaler is not None and recipe.scaler.kind != "none" for recipe in evidence.candidates):
        caveats.append("Recipes are matched on samples seen: a skipped step counts as a step.")
    return caveats
