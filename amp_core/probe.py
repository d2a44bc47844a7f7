"""The same batch again under other numbers, on a copy of the model: nothing of the run changes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.config import Recipe
from amp_core.precision import Fp32
from amp_core.seeding import preserved_rng, set_rng_state
from amp_core.step import TrainStep
from amp_core.telemetry.gradients import OwnedParameters, owners

RngState = tuple[Tensor, Tensor | None]


class Probe:
    """Repeats backward of given batches with the weights and the random stream of the step they stand for."""

    def __init__(self, step: TrainStep, batches: Sequence[Any], rng: RngState, order: Sequence[str]) -> None:
        self._step = step
        self._batches = batches
        self._rng = rng
        self._order = order

    def fp32(self) -> list[OwnedParameters] | None:
        """The modules of a copy whose gradients come from plain FP32; None if it cannot be copied or run."""
        precision = Fp32(Recipe(name="reference", precision="32-true"), self._step.precision.device)
        return self._gradients(precision, scale=1.0)

    def scaled(self, scale: float) -> list[OwnedParameters] | None:
        """The modules of a copy whose gradients come from the run's own precision at another loss scale, or None.

        The gradients stay multiplied by the scale: whether one is zero does not depend on it.
        """
        return self._gradients(self._step.precision, scale)

    def _gradients(self, precision: Fp32, scale: float) -> list[OwnedParameters] | None:
        if not self._step.is_whole:
            return None
        try:
            return self._copied_gradients(precision, scale)
        except Exception as error:  # noqa: BLE001 - a diagnosis must not end the run it looks at
            warnings.warn(
                f"no probe of the gradients: the model could not be copied, or run again ({error}); "
                "underflow is not measured",
                stacklevel=2,
            )
            return None

    def _copied_gradients(self, precision: Fp32, scale: float) -> list[OwnedParameters]:
        device = self._step.precision.device
        model = self._copy()
        if not precision.lowers:
            model.float()  # weights that are stored low, too
        step = TrainStep(self._step.workload, model, self._step.optimizers, precision, scaler=None)
        factor = torch.tensor(scale / len(self._batches), dtype=torch.float32, device=device)
        with preserved_rng(device):
            set_rng_state(self._rng, device)
            for batch in self._batches:
                (step.forward(batch) * factor).backward()  # type: ignore[no-untyped-call]
        return owners(model, self._order)

    def _copy(self) -> nn.Module:
        model = copy.deepcopy(self._step.model)
        for parameter in model.parameters():
            parameter.grad = None
        return model
