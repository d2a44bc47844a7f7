"""The step of an optimizer without the profiler range that torch opens around it."""

from __future__ import annotations

from typing import Any

from torch.autograd import profiler
from torch.optim import Optimizer
from torch.optim import optimizer as module

_RANGE = Optimizer.profile_hook_step(lambda _: None).__code__  # of the function that torch puts around every step


def step(optimizer: Optimizer) -> None:
    """``optimizer.step()``, to the last bit; the range and the empty hooks around it cost more than a small step.

    They are left out where nobody can tell: no profiler runs, no hook is registered, and neither the object (as
    learning rate schedules do) nor anybody's wrapper around the class has changed ``step``.
    """
    hooked: Any = type(optimizer).step
    if (
        getattr(hooked, "__code__", None) is not _RANGE
        or "step" in optimizer.__dict__
        or profiler._is_profiler_enabled
        or optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or module._global_optimizer_pre_hooks
        or module._global_optimizer_post_hooks
    ):
        optimizer.step()
    else:
        hooked.__wrapped__(optimizer)
