"""Faults of what a model stores in low precision: updates, statistics and sums of gradients that rounding swallows."""

from __future__ import annotations

import torch

from amp_core.forensics.diagnosis import Symptom
from amp_core.forensics.execution import StepSeen
from amp_core.forensics.locate import Fault
from amp_core.forensics.subject import Subject, stored_low


def owner(name: str) -> str:
    """The module that holds a parameter or buffer."""
    return name.rpartition(".")[0]


def stuck_fault(subject: Subject, symptom: Symptom) -> Fault:
    """A stored value that should move and does not."""
    name = symptom.names[0]
    weights = symptom.kind == "stuck_weights"
    tensors = dict(subject.model().named_parameters()) | dict(subject.model().named_buffers())
    dtype = str(stored_low(subject, subject.recipe) or tensors[name].dtype).removeprefix("torch.")
    what = "optimizer update of" if weights else "addition to"
    return Fault(
        kind="swamping",
        module=owner(name),
        op=f"{what} {name}, stored in {dtype}",
        phase="update" if weights else "forward",
        max_abs=float(tensors[name].detach().abs().max()),
        evidence={"stored": name, **symptom.figures},
    )


def accumulated_fault(subject: Subject, symptom: Symptom) -> Fault:
    """Gradients of many batches summed in a type too short for the sum."""
    name = max(symptom.figures, key=lambda n: symptom.figures[n])
    return Fault(
        kind="swamping",
        module=owner(name),
        op=f"accumulation of {subject.accumulate} gradients in {name}.grad",
        phase="accumulation",
        evidence={"errors": symptom.figures},
    )


def update_fault(subject: Subject, seen: StepSeen) -> Fault:
    """Finite gradients and then weights that are not: the optimizer divides by what rounded to zero, or overflows."""
    parameters = {name: p for name, p in subject.model().named_parameters() if p.requires_grad}
    bad = [name for name in seen.bad_weights if name in parameters] or list(seen.bad_weights)
    name = max(bad, key=lambda n: seen.gradient_zero.get(n, 0.0))
    group = subject.optimizer(list(parameters.values())).param_groups[0]
    eps = group.get("eps")
    stored = (stored_low(subject, subject.recipe) or parameters[name].dtype) if name in parameters else torch.float32
    vanishes = eps is not None and eps > 0 and float(torch.tensor(eps, dtype=stored)) == 0.0
    text = f"optimizer update with eps={eps:g}, which is 0 in {stored}" if vanishes else "optimizer update"
    return Fault(
        kind="domain_error" if vanishes else "overflow",
        module=owner(name),
        op=text.replace("torch.", ""),
        phase="update",
        max_abs=seen.gradient_max.get(name),
        evidence={"weights": bad, "zero_gradient_share": seen.gradient_zero.get(name), "eps": eps},
    )
