"""One training step under a precision: the hot path, shared by training and benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.clipping import clip_norm, clip_value
from amp_core.errors import WorkloadError
from amp_core.precision import Precision
from amp_core.real_steps import RealSteps
from amp_core.scaler import LossScaler, StepOutcome
from amp_core.telemetry.gradients import GradientNorms
from amp_core.torch_private.optimizers import step as step_alone
from amp_core.workload import Workload, num_samples_of, to_device


class TrainStep:
    """Forward, backward and update of one model. ``backward`` then ``update`` make one step, in that order.

    A step takes as many batches as the recipe accumulates; ``take`` fetches them.
    """

    is_whole = True  # whether this process sees whole batches, so that one of them can be run again

    def __init__(
        self,
        workload: Workload,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        precision: Precision,
        scaler: LossScaler | None,
        real_steps: RealSteps | None = None,
    ) -> None:
        self.workload = workload
        self.model = model
        self.called = model  # what `Workload.loss` gets: the model, or what stands for it among several ranks
        self.optimizers = tuple(optimizers)
        self.precision = precision
        self.scaler = scaler
        self.real_steps = real_steps or RealSteps((), None)
        self.parameters = [p for o in self.optimizers for group in o.param_groups for p in group["params"]]
        self._accumulate = precision.recipe.accumulate
        self._norms = GradientNorms(self.parameters)
        self._clips = precision.recipe.clip_norm is not None or precision.recipe.clip_value is not None

    def take(self, batches: Iterator[Any]) -> tuple[Any, ...]:
        """The next batches of a step, on the device."""
        device = self.precision.device
        if self._accumulate == 1 and device.type == "cpu":
            return (next(batches),)
        if self._accumulate == 1:
            return (to_device(next(batches), device),)
        return tuple(to_device(batch, device) for batch in islice(batches, self._accumulate))

    def num_samples(self, batches: Sequence[Any]) -> int:
        """The size of a step's batches together."""
        if len(batches) == 1:
            return num_samples_of(batches[0])
        return sum(num_samples_of(batch) for batch in batches)

    def gradient_norms(self) -> Tensor | Sequence[Tensor] | None:
        """The norm of every parameter's gradient, `(P,)` or P of `()`; None without gradients."""
        return self._norms()

    def forward(self, batch: Any) -> Tensor:
        """The loss under the recipe's autocast. Raises `WorkloadError` unless it is one number with a gradient."""
        with self.precision.forward():
            loss = self.workload.loss(self.called, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            given = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise WorkloadError(f"loss(model, batch) of {self.workload.name!r} gave {given}: return one scalar tensor")
        if not loss.requires_grad:
            raise WorkloadError(f"the loss of {self.workload.name!r} depends on no parameter: look for a detach()")
        return loss

    def backward(self, batches: Sequence[Any]) -> Tensor:
        """Gradients of the mean loss, unscaled, in ``.grad``; returns it detached. Backward runs outside autocast."""
        if len(batches) == 1:
            total = self._backward(batches[0], 1)
        else:
            total = torch.stack([self._backward(batch, len(batches)) for batch in batches]).mean()
        if self.scaler is not None:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        return total

    def _backward(self, batch: Any, share: int) -> Tensor:
        loss = self.forward(batch)
        part = loss if share == 1 else loss / share
        if self.scaler is not None:
            part = self.scaler.scale(part)
        part.backward()  # type: ignore[no-untyped-call]
        return loss.detach() if loss.ndim == 0 else loss.detach().reshape(())

    def learning_rate(self) -> float:
        """That of the first group of the first optimizer, as the next update will use it."""
        self.real_steps.settle()
        return float(self.optimizers[0].param_groups[0]["lr"])

    def update(self, norms: Tensor | Sequence[Tensor] | None = None) -> StepOutcome | None:
        """Apply the gradients or skip the step; None where nothing can be skipped. The gradients stay readable.

        ``norms``: each parameter's gradient norm from `gradient_norms`, if they are at hand.
        """
        self.real_steps.settle()
        if self._clips:
            self._clip(norms)
        if self.scaler is None:
            for optimizer in self.optimizers:
                step_alone(optimizer)
            self.real_steps.note(None)
            return None
        outcome = self.scaler.finish(*self.optimizers)
        self.real_steps.note(outcome.found_inf)
        return outcome

    def _clip(self, norms: Tensor | Sequence[Tensor] | None) -> None:
        recipe = self.precision.recipe
        if recipe.clip_norm is not None:
            clip_norm(self.parameters, recipe.clip_norm, norms)
        elif recipe.clip_value is not None:
            clip_value(self.parameters, recipe.clip_value)

    def clear(self) -> None:
        """Drop the gradients, without the bookkeeping of torch's ``zero_grad``: it costs more than a step's record."""
        for optimizer in self.optimizers:
            if type(optimizer).zero_grad is not torch.optim.Optimizer.zero_grad:
                optimizer.zero_grad(set_to_none=True)
                continue
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
