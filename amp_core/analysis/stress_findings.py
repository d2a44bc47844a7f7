"""What a stress case shows: a pass under the recipe beside the same in FP32 and in FP64. Pure comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_core.analysis.witness import Output, Seen
from amp_core.events import StressFinding

FLAGRANT = 10.0  # times the error on an ordinary batch
LOST = 0.5  # of a module's nonzero gradient elements
TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Relative errors, in the 2-norm, of each output and of each module's gradient against a reference."""

    outputs: dict[Output, float]
    gradients: dict[str, float]


def errors(seen: Seen, reference: Seen) -> Errors:
    """Infinite where a finite reference is missed by NaN or infinity; what the reference itself lacks is left out."""
    outputs = {
        key: _relative(seen.outputs[key], exact)
        for key, exact in reference.outputs.items()
        if key in seen.outputs and _finite(exact)
    }
    gradients = {
        name: _relative(seen.gradients[name], exact)
        for name, exact in reference.gradients.items()
        if name in seen.gradients and _finite(exact)
    }
    return Errors(outputs=outputs, gradients=gradients)


def find(case: str, low: Seen, fp32: Seen, reference: Seen, ordinary: Errors, tolerance: float) -> list[StressFinding]:
    """The findings of one case, at most one of its forward pass and one of its gradients."""
    if low.error:
        if fp32.error:
            return []
        sentence = f"The recipe raises where FP32 does not: {low.error}"
        return [_finding(case, "raises", low.error_module, "recipe", sentence)]
    mine, theirs = errors(low, reference), errors(fp32, reference)
    found = _forward(case, low, mine, theirs, ordinary, tolerance)
    if found is not None and found.kind == "non_finite":
        return [found]
    backward = _backward(case, low, fp32, reference)
    return [one for one in (found, backward) if one is not None]


def note(reference: Seen, fp32: Seen) -> str:
    """What is true of the model in any precision, or nothing."""
    if not math.isfinite(reference.loss):
        return f"The model's own answer is {reference.loss} in FP64, too: mend the model, not the recipe."
    if fp32.error:
        return f"FP32 raises as well: {fp32.error}"
    return ""


def _forward(
    case: str, low: Seen, mine: Errors, theirs: Errors, ordinary: Errors, tolerance: float
) -> StressFinding | None:
    """The first output, in execution order, that is not finite; else the first that is too far off."""
    for key, error in mine.outputs.items():
        if math.isinf(error):
            same = math.isinf(theirs.outputs.get(key, 0.0))
            value = _spelled(low.outputs[key])
            sentence = f"The output of {key[0]} is {value}, and finite in FP64{'; so it is in FP32' if same else ''}."
            return _finding(case, "non_finite", key[0], "fp32" if same else "recipe", sentence)
    for key, error in mine.outputs.items():
        limit = max(tolerance, FLAGRANT * ordinary.outputs.get(key, 0.0))
        if error > limit:
            same = theirs.outputs.get(key, 0.0) > limit
            sentence = (
                f"The output of {key[0]} is off by {error:.2g} of its size; "
                f"on an ordinary batch by {ordinary.outputs.get(key, 0.0):.1g}."
            )
            return _finding(case, "inaccurate", key[0], "fp32" if same else "recipe", sentence)
    return None


def _backward(case: str, low: Seen, fp32: Seen, reference: Seen) -> StressFinding | None:
    """Gradients, from the last module to the first: not finite at any scale in reach, or lost."""
    for name, exact in reversed(list(reference.gradients.items())):
        given = low.gradients.get(name)
        if given is None or not _finite(exact):
            continue
        wide = fp32.gradients.get(name)
        if not _finite(given):
            same = wide is not None and not _finite(wide)
            at = f" at loss scale {low.scale:g}" if low.scale != 1.0 else ""
            sentence = f"The gradient of {name or 'the model'} is {_spelled(given)}{at}, and finite in FP64."
            return _finding(case, "gradient_overflow", name, "fp32" if same else "recipe", sentence)
    worst = max(((_lost(low, reference, name), name) for name in reference.gradients), default=(0.0, ""))
    if worst[0] <= LOST:
        return None
    same = _lost(fp32, reference, worst[1]) > LOST
    sentence = f"{worst[0]:.0%} of the gradient of {worst[1] or 'the model'} is zero and is not in FP64."
    return _finding(case, "gradient_lost", worst[1], "fp32" if same else "recipe", sentence)


def _lost(seen: Seen, reference: Seen, name: str) -> float:
    """Share of the reference's nonzero elements that are zero; those below FP32's own range do not count."""
    given = seen.gradients.get(name)
    alive = reference.gradients[name].abs() > torch.finfo(torch.float32).tiny
    if given is None or not bool(alive.any()):
        return 0.0
    return float((given[alive] == 0).double().mean())


def _relative(given: Tensor, exact: Tensor) -> float:
    if given.shape != exact.shape:
        return 0.0
    if not _finite(given):
        return math.inf
    size = float(exact.double().norm())
    off = float((given.double() - exact.double()).norm())
    return off / size if size > 0 else (0.0 if off == 0.0 else off)


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _spelled(tensor: Tensor) -> str:
    return "NaN" if bool(torch.isnan(tensor).any()) else "infinite"


def _finding(case: str, kind: str, module: str, caused_by: str, sentence: str) -> StressFinding:
    return StressFinding(case=case, kind=kind, module=module, caused_by=caused_by, sentence=sentence)
