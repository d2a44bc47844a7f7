"""Loss scaling: a drop-in for `torch.amp.GradScaler`, equal to it step for step, with further rules; a step says what
happened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_core.config import HysteresisRefill, Scaler, ScalerKind
from amp_core.torch_private import grad_scaler as private


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step did. Scalars stay on the device: reading them waits for it.

    ``found_inf`` is above 0 if a gradient was not finite and the optimizer therefore changed nothing.
    """

    found_inf: Tensor
    scale_before: Tensor
    scale_after: Tensor


class LossScaler(torch.amp.GradScaler):
    """A GradScaler with a static kind, hysteresis, a floor and a cap. Its defaults are GradScaler's, to the last bit.

    ``kind``: ``dynamic``; ``static`` (the scale stays, non-finite steps are skipped); ``none`` (as ``enabled=False``).
    ``hysteresis``: the scale drops with the n-th overflow and every further one until the counter is filled again:
    when the scale grows (``growth``, as in Megatron and by default in DeepSpeed) or with every clean step
    (``clean_step``, DeepSpeed's ``consecutive_hysteresis``). ``min_scale`` and ``max_scale`` bound what `update` does.

    Used as GradScaler is, or by `finish` in place of ``step`` and ``update``. With fused optimizers nothing here waits
    for the device; with others ``step`` reads ``found_inf`` once per optimizer, as GradScaler does.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
        *,
        kind: ScalerKind = "dynamic",
        hysteresis: int = 1,
        hysteresis_refill: HysteresisRefill = "growth",
        min_scale: float = 0.0,
        max_scale: float | None = None,
    ) -> None:
        self.options = Scaler(
            kind=kind if enabled else "none",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            hysteresis=hysteresis,
            hysteresis_refill=hysteresis_refill,
            min_scale=min_scale,
            max_scale=max_scale,
        )
        on = self.options.kind != "none"
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled=on)
        self._one = torch.ones((), device=device if self.is_enabled() else "cpu")
        self._never = torch.zeros((), device=self._one.device)
        self._hysteresis_left: Tensor | None = None
        self.agree: Callable[[Sequence[Tensor]], None] | None = None  # makes found infinities equal on all ranks

    @classmethod
    def of(cls, options: Scaler, device: torch.device) -> LossScaler:
        """The scaler a recipe describes."""
        return cls(
            device.type,
            options.init_scale,
            options.growth_factor,
            options.backoff_factor,
            options.growth_interval,
            kind=options.kind,
            hysteresis=options.hysteresis,
            hysteresis_refill=options.hysteresis_refill,
            min_scale=options.min_scale,
            max_scale=options.max_scale,
        )

    @property
    def current_scale(self) -> Tensor:
        """The scale as a 0-dim tensor of its own, without waiting for the device; 1 where nothing is scaled."""
        if not self.is_enabled():
            return self._one
        held = private.scale(self)
        return torch.full((), self.get_scale(), device=self._one.device) if held is None else held.clone()

    def finish(self, *optimizers: torch.optim.Optimizer) -> StepOutcome:
        """Step each optimizer unless its gradients are not finite, then update. Gradients must be unscaled."""
        if not self.is_enabled():
            for optimizer in optimizers:
                optimizer.step()
            return StepOutcome(self._never, self._one, self._one)
        for optimizer in optimizers:
            assert private.is_unscaled(self, optimizer), "unscale_ comes before finish"
        for optimizer in optimizers:
            self.step(optimizer)
        return self.conclude()

    def conclude(self) -> StepOutcome:
        """Update after the optimizers' steps, and say what happened since the last update."""
        if not self.is_enabled():
            return StepOutcome(self._never, self._one, self._one)
        before = self.current_scale
        found_inf = _sum(private.found_infs(self), before.device)
        self.update()
        return StepOutcome(found_inf, before, self.current_scale)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """GradScaler's; with `agree` set, an overflow on one rank is then one on every rank."""
        super().unscale_(optimizer)
        if self.agree is not None and self.is_enabled():
            self.agree(private.found_infs_of(self, optimizer))

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Move the scale by the rules, or set it; then forget what the optimizers found."""
        options = self.options
        held = private.scale(self)
        plain = options.hysteresis == 1 and options.min_scale == 0.0 and options.max_scale is None
        if new_scale is not None or held is None or not self.is_enabled() or (plain and options.kind == "dynamic"):
            super().update(new_scale)
        elif options.kind == "static":
            super().update(held)
        else:
            self._update_bounded(held)

    def _update_bounded(self, held: Tensor) -> None:
        """torch's rule, then what hysteresis, floor and cap make of it, all on the device."""
        before, found = held.clone(), _sum(private.found_infs(self), held.device) > 0
        super().update()
        if self.options.hysteresis > 1:
            held.copy_(torch.where(found & (self._count_overflow(found) > 0), before, held))
        held.clamp_(self.options.min_scale, self.options.max_scale)

    def _count_overflow(self, found: Tensor) -> Tensor:
        """Overflows that are still forgiven, after this step."""
        full = torch.full((), self.options.hysteresis, dtype=torch.int32, device=found.device)
        left = full if self._hysteresis_left is None else self._hysteresis_left
        tracker = private.growth_tracker(self)
        assert tracker is not None
        refilled = ~found if self.options.hysteresis_refill == "clean_step" else ~found & (tracker == 0)
        left = torch.where(found, (left - 1).clamp(min=0), torch.where(refilled, full, left))
        self._hysteresis_left = left
        return left

    def state_dict(self) -> dict[str, Any]:
        """GradScaler's, and with hysteresis its counter. Waits for the device."""
        state = super().state_dict()
        if state and self.options.hysteresis > 1:
            left = self._hysteresis_left
            state["_hysteresis_left"] = self.options.hysteresis if left is None else int(left)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state from this class or from GradScaler."""
        super().load_state_dict(state_dict)
        if self.is_enabled() and "_hysteresis_left" in state_dict:
            self._hysteresis_left = torch.full(
                (), state_dict["_hysteresis_left"], dtype=torch.int32, device=self._one.device
            )


def _sum(found: Sequence[Tensor], device: torch.device) -> Tensor:
    if len(found) == 1:
        return found[0].to(device, non_blocking=True).reshape(())
    return torch.stack([each.to(device, non_blocking=True).reshape(()) for each in found]).sum()
