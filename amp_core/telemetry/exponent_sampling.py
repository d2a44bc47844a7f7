"""Exponent histograms of sampled steps: activations as forward makes them, then gradients and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from amp_core.events import ExponentHistograms
from amp_core.telemetry.exponent_counts import exponent_counts, histograms
from amp_core.telemetry.exponents import pack
from amp_core.telemetry.gradients import OwnedParameters, dense

DENSE_SAMPLES = 64  # so many sampled steps have histograms each; from then on half as many with every doubling


def is_kept(step: int, every: int, last_step: int) -> bool:
    """Whether a sampled step has histograms: the first 64 samples and the last, between them ever fewer.

    So a run of any length keeps at most 32 for each doubling of its length, and a resumed one keeps the same steps.
    """
    if step == last_step:
        return True
    sample = step // every
    stride = 1 << max(0, sample.bit_length() - DENSE_SAMPLES.bit_length() + 1)
    return sample % stride == 0


class ExponentSampler:
    """Counts the exponents of one step. ``watching`` spans its backward pass, then ``events`` says what was counted."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._activations: dict[str, Tensor] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the outputs of modules that own parameters or have no children; results do not change."""
        self._activations = {}
        handles = []
        for name, module in self._model.named_modules():
            if next(module.children(), None) is None or next(module.parameters(recurse=False), None) is not None:
                handles.append(module.register_forward_hook(self._counter(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _counter(self, name: str) -> Any:
        def count(_module: nn.Module, _args: Any, output: Any) -> None:
            if torch._C._current_graph_task_id() != -1:
                return  # gradient checkpointing computes it again inside backward
            for leaf in tree_leaves(output):
                if isinstance(leaf, Tensor):
                    self._add(name, leaf)

        return count

    def _add(self, name: str, output: Tensor) -> None:
        if not output.is_floating_point() or output.layout is not torch.strided:
            return
        counts = exponent_counts(output)
        held = self._activations.get(name)
        self._activations[name] = counts if held is None else held + counts

    def events(self, step: int, owned: Sequence[OwnedParameters], scale: float) -> list[ExponentHistograms]:
        """The histograms of the step, gradients as they lie in ``.grad``; waits for the device once per kind."""
        gradients = {owner.module: [dense(p.grad) for p in owner.parameters if p.grad is not None] for owner in owned}
        weights = {owner.module: [p.detach() for p in owner.parameters] for owner in owned}
        counted = {
            "activations": self._activations,
            "gradients": {module: _together(tensors) for module, tensors in gradients.items() if tensors},
            "weights": {module: _together(tensors) for module, tensors in weights.items()},
        }
        self._activations = {}
        return [
            ExponentHistograms(
                step=step,
                kind=kind,
                scale=scale,
                modules=list(counts),
                counts=pack(histograms(list(counts.values()))),
            )
            for kind, counts in counted.items()
            if counts
        ]


def _together(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([exponent_counts(tensor) for tensor in tensors]).sum(dim=0)
