"""Gradients that became zero: each module beside the same module of the FP32 twin at the same sampled steps.

The share that vanished is (z - z₀)/(1 - z₀), with z and z₀ the zero fractions of candidate and twin: of the gradients
that FP32 has, how many are gone. So sparse layers (ReLU, embeddings), whose gradients are zero in FP32 too, raise no
alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from amp_core.events import ModuleStatistics, ZeroGradients
from amp_core.verdict import sentences
from amp_core.verdict.comparison import Cure, Finding
from amp_core.verdict.evidence import RunEvidence

ALL_ZERO = 0.99  # the weight matrix all zero, while the few bias gradients, sums over the batch, may survive
MOST_ZERO = 0.5
TWIN_TRAINS = 0.99  # a twin with fewer nonzero gradients than 1 % does not testify


class Vanished(msgspec.Struct, frozen=True, kw_only=True):
    """One module of one run: in how many sampled steps its gradients vanished, and the worst of them."""

    run: RunEvidence
    module: str
    share: float  # of the gradients FP32 has, at the worst lasting step
    step: int
    zero_fraction: float
    twin_zero_fraction: float


def vanished_modules(run: RunEvidence, twin: RunEvidence) -> list[Vanished]:
    """Modules of a run whose gradients vanish lastingly, compared at the steps that both runs sampled."""
    theirs = {sample.step: {one.module: one for one in sample.modules} for sample in twin.numerics_samples}
    skipped = {skip.step for skip in run.skips}
    history: dict[str, list[tuple[float, int, ModuleStatistics, ModuleStatistics]]] = {}
    for sample in sorted(run.numerics_samples, key=lambda one: one.step):
        if sample.step in skipped or sample.step not in theirs:
            continue  # gradients of a skipped step are infinite, not small
        for ours in sample.modules:
            other = theirs[sample.step].get(ours.module)
            if other is not None and other.zero_fraction <= TWIN_TRAINS and other.num_elements > 0:
                share = (ours.zero_fraction - other.zero_fraction) / (1.0 - other.zero_fraction)
                history.setdefault(ours.module, []).append((share, sample.step, ours, other))
    found = []
    for module, samples in history.items():
        lasting = _lasting(samples)
        if lasting is not None:
            share, step, ours, other = lasting
            found.append(
                Vanished(
                    run=run,
                    module=module,
                    share=share,
                    step=step,
                    zero_fraction=ours.zero_fraction,
                    twin_zero_fraction=other.zero_fraction,
                )
            )
    return found


def _lasting(
    samples: Sequence[tuple[float, int, ModuleStatistics, ModuleStatistics]],
) -> tuple[float, int, ModuleStatistics, ModuleStatistics] | None:
    """The first sample at the highest level that holds in half of the samples or in the last two; None for neither."""
    for level in (ALL_ZERO, MOST_ZERO):
        at_level = [one for one in samples if one[0] >= level]
        ends_so = len(samples) >= 2 and all(one[0] >= level for one in samples[-2:])
        if at_level and (2 * len(at_level) >= len(samples) or ends_so):
            return at_level[0]
    return None


def vanishing_findings(twins: Sequence[tuple[RunEvidence, RunEvidence]], cure: Cure | None) -> list[Finding]:
    """At most one fatal finding (all-zero modules) and one caution (most gradients zero), over all seeds."""
    vanished = [one for run, twin in twins for one in vanished_modules(run, twin)]
    findings = []
    for kind, low, high in (("zero_gradients", ALL_ZERO, math.inf), ("vanishing_gradients", MOST_ZERO, ALL_ZERO)):
        group = [one for one in vanished if low <= one.share < high]
        if group:
            findings.append(_finding(kind, group, cure))
    return findings


def _finding(kind: str, group: Sequence[Vanished], cure: Cure | None) -> Finding:
    probed = [(one, probe) for one in group if (probe := _probe_of(one)) is not None]
    worst, probe = max(probed, key=lambda item: item[0].share) if probed else (max(group, key=lambda o: o.share), None)
    modules = list(dict.fromkeys(one.module for one in group))
    others = len(modules) - 1
    evidence: dict[str, Any] = {
        "runs": sorted({one.run.run_id for one in group}),
        "modules": modules,
        "zero_fraction": worst.zero_fraction,
        "baseline_zero_fraction": worst.twin_zero_fraction,
        "vanished_share": worst.share,
    }
    returns = ""
    if probe is not None:
        evidence |= {"probe_scale": probe.probe_scale, "probe_zero_fraction": probe.probe[worst.module]}
        returns = f"; scaled by {probe.probe_scale:,.0f} they return"
    also = f" (and of {sentences.count(others, 'other module')})" if others else ""
    share = "All" if worst.zero_fraction == 1.0 else sentences.percent(worst.zero_fraction)
    whose = (
        "" if worst.twin_zero_fraction < 0.005 else f", in the baseline {sentences.percent(worst.twin_zero_fraction)}"
    )
    sentence = f"{share} of the gradients of {worst.module or 'the model itself'}{also} became zero{whose}{returns}."
    return Finding(
        kind=kind,
        severity="fatal" if kind == "zero_gradients" else "caution",
        module=worst.module,
        step=worst.step,
        seeds=sorted({one.run.seed for one in group}),
        sentence=sentence[0].upper() + sentence[1:],
        evidence=evidence,
        cure=cure,
    )


def _probe_of(vanished: Vanished) -> ZeroGradients | None:
    """The run's own probe that brings this module's gradients back: at least half of those that vanished."""
    for event in sorted(vanished.run.zero_gradients, key=lambda one: abs(one.step - vanished.step)):
        after = event.probe.get(vanished.module)
        before = event.zero_fraction.get(vanished.module, vanished.zero_fraction)
        if after is not None and before - after >= 0.5 * (before - vanished.twin_zero_fraction) > 0.0:
            return event
    return None
