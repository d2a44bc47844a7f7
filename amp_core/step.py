"""One training step under a precision: the hot path, shared by training and benchmark."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from amp_core.errors import WorkloadError
from amp_core.precision import Precision
from amp_core.scaler import LossScaler, StepOutcome
from amp_core.workload import Workload


class TrainStep:
    """Forward, backward and update of one model. ``backward`` then ``update`` make one step, in that order."""

    def __init__(
        self,
        workload: Workload,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        precision: Precision,
        scaler: LossScaler | None,
    ) -> None:
        self.workload = workload
        self.model = model
        self.optimizer = optimizer
        self.precision = precision
        self.scaler = scaler

    def forward(self, batch: Any) -> Tensor:
        """The loss under the recipe's autocast. Raises `WorkloadError` unless it is one number with a gradient."""
        with self.precision.forward():
            loss = self.workload.loss(self.model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            given = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise WorkloadError(f"loss(model, batch) of {self.workload.name!r} gave {given}: return one scalar tensor")
        if not loss.requires_grad:
            raise WorkloadError(f"the loss of {self.workload.name!r} depends on no parameter: look for a detach()")
        return loss

    def backward(self, batch: Any) -> Tensor:
        """Gradients of one batch, unscaled, in ``.grad``; returns the detached loss. Backward runs outside autocast."""
        loss = self.forward(batch)
        if self.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            self.scaler.unscale_(self.optimizer)
        return loss.detach().reshape(())

    def update(self) -> StepOutcome | None:
        """Apply the gradients or skip the step; None where nothing can be skipped. The gradients stay readable."""
        if self.scaler is None:
            self.optimizer.step()
            return None
        return self.scaler.finish(self.optimizer)

    def clear(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad(set_to_none=True)
