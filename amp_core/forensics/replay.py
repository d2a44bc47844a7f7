"""The same batches from the same state under other numbers: another scale, FP32, single parts of a sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_core.forensics.execution import Execution, State
from amp_core.forensics.subject import Arm, Subject

HALVINGS = 24


@dataclass(slots=True)
class Replayed:
    """Loss and unscaled gradients of one step; ``scaled_zero`` is taken before unscaling."""

    losses: list[float]
    gradients: dict[str, Tensor]

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self.losses)) and all(
            bool(torch.isfinite(g).all()) for g in self.gradients.values()
        )


def replay(
    subject: Subject, arm: Arm, state: State | None, batches: Sequence[Any], scale: float | None = None
) -> Replayed | None:
    """Forward and backward of the batches from a state at a loss scale; None if the code raises."""
    execution = Execution(subject, arm)
    try:
        with execution.applied():
            if state is not None:
                execution.load(state)
            if scale is None:
                scale = float(execution.scaler.current_scale) if execution.scaler is not None else 1.0
            losses = []
            for batch in batches:
                loss = execution.forward(batch)
                losses.append(float(loss.detach()))
                execution.backward(loss, scale)
    except (RuntimeError, ValueError, TypeError):
        return None
    grads = {name: p.grad.detach().double() / scale for name, p in execution.named.items() if p.grad is not None}
    return Replayed(losses, grads)


def loss_at(subject: Subject, arm: Arm, state: State, batches: Sequence[Any]) -> float | None:
    """Mean loss from a state without gradients, in training mode; None if the code raises."""
    execution = Execution(subject, arm)
    try:
        with execution.applied(), torch.no_grad():
            execution.load(state)
            losses = [float(execution.forward(batch)) for batch in batches]
    except (RuntimeError, ValueError, TypeError):
        return None
    return sum(losses) / len(losses)


def flushed_shares(low: Replayed, reference: Replayed) -> dict[str, float]:
    """Per parameter: share of the gradient elements nonzero in the reference that are exactly zero in low precision."""
    shares = {}
    for name, wide in reference.gradients.items():
        narrow = low.gradients.get(name)
        alive = wide != 0
        total = int(alive.sum())
        if narrow is None or not total:
            continue
        shares[name] = int((alive & (narrow == 0)).sum()) / total
    return shares


def scale_that_fits(subject: Subject, arm: Arm, state: State, batches: Sequence[Any], scale: float) -> float | None:
    """The largest scale/2^k at which loss and gradients are finite, or None: then the values do it at any scale."""
    for halvings in range(1, HALVINGS + 1):
        lower = scale / 2.0**halvings
        seen = replay(subject, arm, state, batches, lower)
        if seen is None or not all(map(math.isfinite, seen.losses)):
            return None
        if seen.finite:
            return lower
    return None


def accumulation_errors(subject: Subject, arm: Arm, state: State) -> dict[str, float]:
    """Relative error of each accumulated gradient against the float64 sum of the single batches' gradients."""
    batches = subject.micro_batches(0)
    together = replay(subject, arm, state, batches)
    if together is None or len(batches) < 2:
        return {}
    total: dict[str, Tensor] = {}
    for batch in batches:
        alone = replay(subject, arm, state, [batch])
        if alone is None:
            return {}
        for name, gradient in alone.gradients.items():
            total[name] = total[name] + gradient if name in total else gradient
    errors = {}
    for name, exact in total.items():
        norm = float(exact.norm())
        if norm > 0 and name in together.gradients:
            errors[name] = float((together.gradients[name] - exact).norm()) / norm
    return errors
