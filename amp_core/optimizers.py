"""The optimizers and schedules a workload gives, checked before the first step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from amp_core.errors import WorkloadError
from amp_core.workload import Workload


def checked_optimizers(workload: Workload, model: nn.Module) -> list[torch.optim.Optimizer]:
    """What `Workload.optimizers` returns. Raises `WorkloadError` for another type or a weight in two of them."""
    given = workload.optimizers(model)
    optimizers = list(given) if isinstance(given, Sequence) else [given]
    owner = f"optimizers() of workload {workload.name!r}"
    if type(workload).optimizers is Workload.optimizers:
        owner = f"optimizer() of workload {workload.name!r}"
    for optimizer in optimizers:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise WorkloadError(f"{owner} gave {type(optimizer).__name__}: return a torch.optim.Optimizer")
    if not optimizers:
        raise WorkloadError(f"{owner} gave none: return at least one torch.optim.Optimizer")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    seen: set[int] = set()
    for parameter in (p for o in optimizers for group in o.param_groups for p in group["params"]):
        if id(parameter) in seen:
            name = names.get(id(parameter), "a parameter outside the model")
            raise WorkloadError(f"{owner}: {name!r} is in two optimizers; its gradient would be used twice: keep one")
        seen.add(id(parameter))
    for optimizer in optimizers:
        start_momentum(optimizer)
    return optimizers


def start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Give a fused SGD its momentum before the first step.

    torch allocates it without a value on the first call, and a first step that a scaler skips leaves it so: what
    memory held becomes momentum (2.13). From zero the first step sets it to the gradient, as torch does.
    """
    if not isinstance(optimizer, torch.optim.SGD):
        return
    for group in optimizer.param_groups:
        if group["fused"] and group["momentum"] and not group["dampening"]:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def checked_schedules(workload: Workload, optimizers: Sequence[torch.optim.Optimizer], steps: int) -> list[LRScheduler]:
    """The schedule of each optimizer that has one. Raises `WorkloadError` for something else."""
    schedules = []
    for optimizer in optimizers:
        schedule = workload.schedule(optimizer, steps)
        if schedule is None:
            continue
        if not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau):
            raise WorkloadError(
                f"schedule() of workload {workload.name!r} gave {type(schedule).__name__}: return a "
                "torch.optim.lr_scheduler that is stepped once a step without a metric, or None"
            )
        schedules.append(schedule)
    return schedules
