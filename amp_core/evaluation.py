"""Evaluation: evaluation mode, no gradients, the recipe's autocast, and no trace in the run's random streams."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import nn

from amp_core.ema import Ema
from amp_core.errors import WorkloadError
from amp_core.precision import Precision
from amp_core.seeding import preserved_rng, seed_everything, stream_seed
from amp_core.workload import Workload, num_samples_of, to_device

Result = TypeVar("Result")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_PICTURE_BYTES = 8 * 1024 * 1024


class Evaluation:
    """Evaluates one workload's model always on the same data; with the average of its weights where one is kept."""

    def __init__(
        self, workload: Workload, precision: Precision, device: torch.device, seed: int, ema: Ema | None = None
    ) -> None:
        self._average = ema.in_place if ema is not None else nullcontext
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
        """The workload's pictures that are PNG files. What goes wrong with one is a warning: the run has its result."""
        try:
            pictures = dict(self._run(model, lambda: self.workload.artifacts(model)))
        except Exception as error:  # noqa: BLE001 - the workload's own code, after the last step
            warnings.warn(f"no pictures: artifacts() of workload {self.workload.name!r} raised {error!r}", stacklevel=2)
            return {}
        kept = {name: content for name, content in pictures.items() if _is_png(content)}
        for name in pictures.keys() - kept.keys():
            warnings.warn(
                f"picture {name!r} of workload {self.workload.name!r} is left out: it must be the bytes of a PNG file "
                f"of at most {MAX_PICTURE_BYTES} bytes",
                stacklevel=2,
            )
        return kept

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
        with preserved_rng(self.device), evaluation_mode(model), self._average(), torch.no_grad():
            seed_everything(self.seed)
            with self.precision.forward():
                return call()


def _is_png(content: object) -> bool:
    return isinstance(content, bytes) and content.startswith(PNG_SIGNATURE) and len(content) <= MAX_PICTURE_BYTES


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
