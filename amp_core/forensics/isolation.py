"""Which module's rounding does the harm, by intervention: each is kept in FP32 in turn and the loss looked at.

Keeping a module in FP32 also hands FP32 on to whoever reads its output, which would clear modules of their own guilt.
So the others are first held to the input types that they had; only if no module helps that way are they released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import torch

from amp_core.forensics.execution import State
from amp_core.forensics.replay import loss_at, replay
from amp_core.forensics.subject import FP32_ARM, Arm, Subject
from amp_core.forensics.trace import Trace

CURED = 0.25  # of the deviation left
MAX_MODULES = 64


def deviation(subject: Subject, arm: Arm, state: State, batches: Sequence[object]) -> float:
    """How far the arm's loss is from FP32's from the same weights; infinite if the arm cannot run."""
    value, twin = loss_at(subject, arm, state, batches), loss_at(subject, FP32_ARM, state, batches)
    if value is None or twin is None or value != value:
        return float("inf")
    return abs(value - twin)


def gradient_deviation(subject: Subject, arm: Arm, state: State, batches: Sequence[object]) -> float:
    """The same for gradients: relative distance of all of them together."""
    low, wide = replay(subject, arm, state, batches), replay(subject, FP32_ARM, state, batches)
    if low is None or wide is None or not low.finite:
        return float("inf")
    distance = sum(float((low.gradients[n] - g).norm()) ** 2 for n, g in wide.gradients.items() if n in low.gradients)
    size = sum(float(g.norm()) ** 2 for g in wide.gradients.values())
    return float((distance / size) ** 0.5) if size else 0.0


def kept(arm: Arm, modules: Sequence[str]) -> Arm:
    """The arm with more modules in FP32."""
    names = tuple(dict.fromkeys([*arm.recipe.fp32_modules, *modules]))
    return replace(arm, recipe=msgspec.structs.replace(arm.recipe, fp32_modules=names))


def guilty_modules(subject: Subject, arm: Arm, trace: Trace, state: State) -> list[str]:
    """Modules each of which, alone in FP32, brings the loss (or the gradients) back; the likeliest first."""
    batches = subject.batches[:2]
    for measure in (deviation, gradient_deviation):
        total = measure(subject, arm, state, batches)
        if total == 0 or (measure is gradient_deviation and total < CURED):
            continue
        for held in (True, False):
            left = {}
            for name in [name for name in trace.order if name][:MAX_MODULES]:
                if subject.late:
                    break
                candidate = kept(arm, [name])
                if held:
                    candidate = replace(candidate, input_dtypes=_held(trace, name))
                left[name] = measure(subject, candidate, state, batches)
            cured = {name: value for name, value in left.items() if value < CURED * total}
            if cured:
                return _innermost_first(cured)
    return []


def _held(trace: Trace, name: str) -> dict[str, tuple[torch.dtype | None, ...]]:
    return {
        other: dtypes
        for other, dtypes in trace.input_dtypes.items()
        if other and other != name and not other.startswith(f"{name}.") and not name.startswith(f"{other}.")
    }


def _innermost_first(cured: dict[str, float]) -> list[str]:
    """Modules without a cured module inside them, then the others; smallest deviation first within each group."""
    inner = [n for n in cured if not any(other.startswith(f"{n}.") for other in cured)]
    outer = [n for n in cured if n not in inner]
    return [*sorted(inner, key=lambda n: cured[n]), *sorted(outer, key=lambda n: -n.count("."))]
