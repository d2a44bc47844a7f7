"""From a symptom to its faults: which step to look at again, with what eyes, and whether the loss scale is to blame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from amp_core.forensics.cures import Cure
from amp_core.forensics.diagnosis import Cause, Symptom
from amp_core.forensics.execution import State
from amp_core.forensics.isolation import deviation, guilty_modules
from amp_core.forensics.locate import Fault, flush_faults, non_finite_faults
from amp_core.forensics.refusals import refusal
from amp_core.forensics.replay import flushed_shares, replay, scale_that_fits
from amp_core.forensics.rounding import rounding_kind, within
from amp_core.forensics.stored import accumulated_fault, stuck_fault, update_fault
from amp_core.forensics.subject import FP32_ARM, Arm, Subject
from amp_core.forensics.symptoms import Evidence
from amp_core.forensics.trace import Trace, trace_step

DOUBLINGS = 24
UNKNOWN = Fault(kind="precision_loss", module=None, op="not located", phase="forward")


@dataclass(kw_only=True)
class Blame:
    """Faults, the likeliest first, and the verdict on the loss scale (``fitting_scale``: one that helps)."""

    faults: list[Fault] = field(default_factory=list)
    cause: Cause = "data"
    scale: float | None = None
    fitting_scale: float | None = None
    first_batch: int = 0

    def chosen(self, cure: Cure | None) -> Fault:
        """The fault whose module the verified cure keeps in FP32; else the first."""
        kept = cure.recipe.fp32_modules if cure is not None and cure.verified else ()
        for fault in self.faults:
            if fault.module and any(within(fault.module, name) for name in kept):
                return fault
        return self.faults[0] if self.faults else UNKNOWN


def blame(subject: Subject, arm: Arm, evidence: Evidence, symptom: Symptom) -> Blame:
    """Find the faults behind a symptom."""
    if symptom.kind == "error":
        return Blame(faults=[refusal(subject, arm, evidence)])
    if symptom.kind in ("stuck_weights", "stuck_statistics"):
        return Blame(faults=[stuck_fault(subject, symptom)])
    if symptom.kind == "gradient_error":
        return Blame(faults=[accumulated_fault(subject, symptom)])
    if symptom.kind == "quality":
        return _silent(subject, arm, evidence)
    if symptom.kind == "zero_gradients":
        return _vanished(subject, arm, evidence, symptom)
    return _non_finite(subject, arm, evidence, symptom)


def _traces(
    subject: Subject, arm: Arm, state: State | None, batches: Sequence[Any], evaluate: bool = False
) -> tuple[Trace, Trace]:
    low = trace_step(subject, arm, state, batches, exactly=True, evaluate=evaluate)
    return low, trace_step(subject, FP32_ARM, state, batches, exactly=False, evaluate=evaluate)


def _non_finite(subject: Subject, arm: Arm, evidence: Evidence, symptom: Symptom) -> Blame:
    if symptom.kind == "non_finite_evaluation":
        return _evaluation(subject, arm, evidence)
    index = symptom.step - 1
    state = evidence.low.unsound.get(index)
    batches = subject.micro_batches(index)
    low, reference = _traces(subject, arm, state, batches)
    faults = non_finite_faults(low, reference)
    seen = evidence.low.steps[index]
    result = Blame(faults=faults, scale=_scale(arm, evidence, index), first_batch=index * subject.accumulate)
    if not faults and seen.bad_weights and seen.finite_gradients:
        result.faults = [update_fault(subject, seen)]
        return result
    if state is not None and all(map(math.isfinite, seen.losses)) and result.scale is not None:
        result.fitting_scale = scale_that_fits(subject, arm, state, batches, result.scale)
        result.cause = "scale" if result.fitting_scale is not None else "data"
    return result


def _scale(arm: Arm, evidence: Evidence, index: int) -> float | None:
    return evidence.low.steps[index].scale if arm.recipe.precision == "16-mixed" and evidence.low.steps else None


def _evaluation(subject: Subject, arm: Arm, evidence: Evidence) -> Blame:
    losses = evidence.low.eval_losses
    number = next(i for i, value in enumerate(losses) if not math.isfinite(value))
    low, reference = _traces(subject, arm, evidence.low.final, [subject.eval_batches[number]], evaluate=True)
    return Blame(faults=non_finite_faults(low, reference), first_batch=number)


def _silent(subject: Subject, arm: Arm, evidence: Evidence) -> Blame:
    """A loss that is wrong without anything infinite at the end: saturation inside, zeros inside, or rounding."""
    state = _telling_state(subject, arm, evidence)
    low, reference = _traces(subject, arm, state, subject.batches[:1])
    faults = [f for f in non_finite_faults(low, reference) if f.phase == "forward"]
    faults += flush_faults(low, "forward")
    if faults:
        return Blame(faults=faults)
    for name in guilty_modules(subject, arm, low, state):
        kind, op, largest = rounding_kind(low, name)
        faults.append(Fault(kind=kind, module=name, op=op, phase="forward", max_abs=largest))
    return Blame(faults=faults)


def _telling_state(subject: Subject, arm: Arm, evidence: Evidence) -> State:
    """The state from which low precision is furthest from FP32."""
    known = (evidence.low.initial, evidence.reference.final, evidence.low.final)
    states = [state for state in known if state is not None]
    far = [deviation(subject, arm, state, subject.batches[:2]) for state in states]
    finite = [value if math.isfinite(value) else -1.0 for value in far]
    return states[finite.index(max(finite))]


def _vanished(subject: Subject, arm: Arm, evidence: Evidence, symptom: Symptom) -> Blame:
    state = evidence.low.before_last
    index = subject.num_steps - 1
    batches = subject.micro_batches(index)
    low, reference = _traces(subject, arm, state, batches)
    result = Blame(scale=_scale(arm, evidence, index), first_batch=index * subject.accumulate)
    inside = non_finite_faults(low, reference)
    if inside:
        result.faults = inside
        return result
    module = _vanishing_module(subject, symptom, low)
    flushes = flush_faults(low, "backward")
    where = flushes[0] if flushes else None
    result.faults = [
        Fault(
            kind="underflow",
            module=module,
            op=f"backward: {where.evidence['node'] or where.op}" if where else "backward",
            phase="backward",
            max_abs=where.max_abs if where else None,
            evidence={"flushed_in": where.module if where else None, "shares": symptom.figures},
        )
    ]
    if state is not None:
        result.fitting_scale = _scale_that_saves(subject, arm, state, batches, symptom, result.scale or 1.0)
        result.cause = "scale" if result.fitting_scale is not None else "data"
    return result


def _vanishing_module(subject: Subject, symptom: Symptom, low: Trace) -> str | None:
    """The largest module all of whose parameters vanish; without one, the first in forward order that owns any."""
    owners = [name.rpartition(".")[0] for name in low.gradients if name in symptom.names]
    healthy = {name.rpartition(".")[0] for name in low.gradients if name not in symptom.names}
    first = min(owners, key=lambda name: low.order.index(name) if name in low.order else len(low.order))
    best = first
    for name, _ in subject.model().named_modules():
        if name and within(first, name) and not any(within(other, name) for other in healthy):
            best = name if len(name) < len(best) else best
    return best


def _scale_that_saves(
    subject: Subject, arm: Arm, state: State, batches: Sequence[Any], symptom: Symptom, scale: float
) -> float | None:
    """The lowest scale·2^k at which the vanished gradients are back, whatever else it breaks."""
    wide = replay(subject, FP32_ARM, state, batches)
    if wide is None:
        return None
    for doublings in range(1, DOUBLINGS + 1):
        higher = scale * 2.0**doublings
        seen = replay(subject, replace(arm), state, batches, higher)
        if seen is None:
            return None
        shares = flushed_shares(seen, wide)
        if all(shares.get(name, 1.0) < 0.05 for name in symptom.names):
            return higher
    return None
