"""The same steps from the same start under another recipe, beside FP32: what the oracle of a search judges by."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from amp_core.analysis.start import Moment, Start, step_at
from amp_core.config import Recipe, RunConfig
from amp_core.step import TrainStep
from amp_core.workload import Workload

RETRIES = 40  # of skipped steps in one replay: from 2**24 down to 2**-16 by halves
TINY = 1e-30


@dataclass(slots=True)
class Replayed:
    """One replay. ``moved``: how far each module's own weights came, flat. ``refused``: why it ended before its end."""

    losses: list[float] = field(default_factory=list)
    moved: dict[str, Tensor] = field(default_factory=dict)
    skipped: int = 0
    scale: float | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How far a replay is from FP32's.

    ``loss``: mean |difference| over the steps by the mean |loss|; infinite where the replay broke off. ``update``: the
    relative error of each module's change of weights, in its 2-norm.
    """

    loss: float
    update: dict[str, float]
    refused: str = ""


def replay(
    config: RunConfig, workload: Workload, start: Start, recipe: Recipe, perturbation: float = 0.0, draw: int = 0
) -> Replayed:
    """Take the start's steps. A skipped step is taken again at the lower scale: all replays make the same updates."""
    step = step_at(config, workload, start, recipe, perturbation, draw)
    before = _weights(step)
    seen = Replayed()
    with step.precision.applied(step.model):
        for number, taken in enumerate(start.steps, start=start.number + 1):
            if not _take(step, taken, number, seen):
                break
    after = _weights(step)
    seen.moved = {module: after[module] - before[module] for module in after}
    broken = [module for module, moved in seen.moved.items() if not bool(torch.isfinite(moved).all())]
    if broken and not seen.refused:
        seen.refused = f"the weights of {broken[0]} are not finite after step {start.number + len(start.steps)}"
    seen.scale = float(step.scaler.current_scale) if step.scaler is not None else None
    return seen


def _take(step: TrainStep, taken: tuple[object, ...], number: int, seen: Replayed) -> bool:
    """One step, again after a skip; False if it cannot be taken."""
    while True:
        moment = Moment.of(step)
        loss = float(step.backward(taken))
        if not math.isfinite(loss):
            seen.refused = f"the loss of step {number} is {loss}"
            return False
        outcome = step.update()
        step.clear()
        step.real_steps.settle()
        if outcome is None or not float(outcome.found_inf) > 0:
            seen.losses.append(loss)
            return True
        seen.skipped += 1
        moment.restore(step)
        if seen.skipped > RETRIES or float(outcome.scale_after) >= float(outcome.scale_before):
            seen.refused = f"gradients of step {number} are not finite at any loss scale it came to"
            return False


def deviations(seen: Replayed, reference: Replayed) -> Deviation:
    """How far a replay is from the reference. Modules that FP32 does not move are left out."""
    if seen.refused:
        return Deviation(loss=math.inf, update={}, refused=seen.refused)
    size = sum(map(abs, reference.losses)) / len(reference.losses)
    off = sum(abs(a - b) for a, b in zip(seen.losses, reference.losses, strict=True)) / len(reference.losses)
    errors = {
        module: float((seen.moved[module] - moved).norm()) / float(moved.norm())
        for module, moved in reference.moved.items()
        if float(moved.norm()) > 0
    }
    return Deviation(loss=off / max(size, TINY), update=errors)


def _weights(step: TrainStep) -> dict[str, Tensor]:
    """The trained weights of each module that owns some, flat and in double precision."""
    found = {}
    for name, module in step.model.named_modules():
        own = [p.detach().reshape(-1).double() for p in module.parameters(recurse=False) if p.requires_grad]
        if own:
            found[name] = torch.cat(own)
    return found
