"""Evaluation: evaluation mode, no gradients, the recipe's autocast, and no trace in the run's random streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn

from amp_core.errors import WorkloadError
from amp_core.precision import Precision
from amp_core.seeding import preserved_rng, seed_everything, stream_seed
from amp_core.workload import Workload, num_samples_of, to_device

Result = TypeVar("Result")


class Evaluation:
    """Evaluates one workload's model always on the same data."""

    def __init__(self, workload: Workload, precision: Precision, device: torch.device, seed: int) -> None:
        self.workload = workload
        self.precision = precision
        self.device = device
        self.seed = stream_seed(seed, "evaluation")

    def metrics(self, model: nn.Module) -> tuple[dict[str, float], int]:
        """The workload's metrics and the number of samples behind them. Raises `WorkloadError` for no numbers."""
        counted = 0

        def batches() -> Iterator[Any]:
            nonlocal counted
            for batch in self._data():
                counted += num_samples_of(batch)
                yield to_device(batch, self.device)

        results = self._run(model, lambda: self.workload.metrics(model, batches()))
        try:
            return {str(name): float(value) for name, value in dict(results).items()}, counted
        except (TypeError, ValueError) as error:
            raise WorkloadError(
                f"metrics() of workload {self.workload.name!r} must return numbers by name: {error}"
            ) from error

    def artifacts(self, model: nn.Module) -> dict[str, bytes]:
        """The workload's pictures."""
        return self._run(model, lambda: self.workload.artifacts(model))

    def _data(self) -> Iterator[Any]:
        """The evaluation batches, made outside autocast so that every recipe sees the same numbers."""
        plain = torch.autocast(self.device.type, enabled=False)
        with plain:
            batches = iter(self.workload.batches("eval", self.seed))
        while True:
            with plain:
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _run(self, model: nn.Module, call: Callable[[], Result]) -> Result:
        with preserved_rng(self.device), evaluation_mode(model), torch.no_grad(), self.precision.forward():
            seed_everything(self.seed)
            return call()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """``model.eval()`` inside; afterwards every module is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
