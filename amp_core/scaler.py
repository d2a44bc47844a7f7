"""Loss scaling: `torch.amp.GradScaler` step for step, plus a static and a no-op kind; a step says what happened.

The private state of GradScaler is read here and nowhere else; a contract test holds the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from amp_core.config import Scaler


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step did. Scalars stay on the device: reading them waits for it.

    ``found_inf`` is above 0 if a gradient was not finite and the optimizer therefore changed nothing.
    """

    found_inf: Tensor
    scale_before: Tensor
    scale_after: Tensor


class LossScaler(torch.amp.GradScaler):
    """A GradScaler with the kinds ``dynamic``, ``static`` (the scale stays, non-finite steps are skipped) and ``none``.

    Call ``scale(loss).backward()``, `unscale_`, then `finish`, which steps and updates. ``none`` neither scales, checks
    nor skips. With a fused optimizer nothing here waits for the device; with another one, ``step`` reads ``found_inf``
    once, as GradScaler does.
    """

    def __init__(self, options: Scaler, device: torch.device) -> None:
        super().__init__(
            device.type,
            init_scale=options.init_scale,
            growth_factor=options.growth_factor,
            backoff_factor=options.backoff_factor,
            growth_interval=options.growth_interval,
            enabled=options.kind != "none",
        )
        self.options = options
        self._one = torch.ones((), device=device)
        self._never = torch.zeros((), device=device)

    @property
    def current_scale(self) -> Tensor:
        """The scale as a 0-dim tensor of its own, without waiting for the device; 1 before the first step of `none`."""
        if not self.is_enabled():
            return self._one
        if self._scale is None:
            return torch.full((), self.options.init_scale, device=self._one.device)
        return self._scale.clone()

    def finish(self, optimizer: torch.optim.Optimizer) -> StepOutcome:
        """Step the optimizer unless a gradient is not finite, then update the scale. Gradients must be unscaled."""
        if not self.is_enabled():
            optimizer.step()
            return StepOutcome(self._never, self._one, self._one)
        state = self._per_optimizer_states[id(optimizer)]
        assert state["stage"].name == "UNSCALED", "unscale_ comes before finish"
        before = self.current_scale
        self.step(optimizer)
        found = cast(dict[torch.device, Tensor], state["found_inf_per_device"])
        found_inf = torch.stack([each.to(before.device, non_blocking=True) for each in found.values()]).sum()
        if self.options.kind == "static":
            self.update(self.options.init_scale)
        else:
            self.update()
        return StepOutcome(found_inf, before, self.current_scale)
