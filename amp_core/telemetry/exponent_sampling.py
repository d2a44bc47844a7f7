"""Exponent histograms of sampled steps: activations as forward makes them, then gradients and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.events import ExponentHistograms
from amp_core.telemetry.exponent_counts import SMALL, exponent_counts, grouped_counts, histograms
from amp_core.telemetry.exponents import pack
from amp_core.telemetry.gradients import OwnedParameters, dense
from amp_core.torch_private import autograd
from amp_core.torch_private.tensors import tree_leaves

DENSE_SAMPLES = 64  # so many sampled steps have histograms each; from then on half as many with every doubling
ALL_KINDS_EVERY = 8  # activations are many and weights move slowly: one sample of so many, and the last, has them too


def is_kept(step: int, every: int, last_step: int) -> bool:
    """Whether a sampled step has histograms: the first 64 samples and the last, between them ever fewer.

    So a run of any length keeps at most 32 for each doubling of its length, and a resumed one keeps the same steps.
    """
    return step == last_step or (step // every) % _stride(step // every) == 0


def has_all_kinds(step: int, every: int, last_step: int) -> bool:
    """Whether such a step has activations and weights beside gradients: the first of every 8 kept, and the last."""
    sample = step // every
    return step == last_step or sample % (ALL_KINDS_EVERY * _stride(sample)) == 0


def _stride(sample: int) -> int:
    return 1 << max(0, sample.bit_length() - DENSE_SAMPLES.bit_length() + 1)


class ExponentSampler:
    """Counts the exponents of one step. ``watching`` spans its backward pass, then ``events`` says what was counted."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._forget()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the outputs of modules that own parameters or have no children; results do not change."""
        self._forget()
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
            if autograd.is_in_backward():
                return  # gradient checkpointing computes it again inside backward
            for leaf in tree_leaves(output):
                if isinstance(leaf, Tensor):
                    self._add(name, leaf)

        return count

    def _add(self, name: str, output: Tensor) -> None:
        if not output.is_floating_point() or output.layout is not torch.strided:
            return
        self._order[name] = None
        if output.numel() <= SMALL:
            self._small.setdefault(name, []).append(output.detach().clone())  # what follows may write into it
            return
        counts = exponent_counts(output)
        held = self._activations.get(name)
        self._activations[name] = counts if held is None else held + counts

    def events(
        self, step: int, owned: Sequence[OwnedParameters], scale: float, *, weights: bool
    ) -> list[ExponentHistograms]:
        """The histograms of the step, gradients as they lie in ``.grad``; waits for the device once per kind."""
        self.count(owned, weights=weights)
        return self.taken(step, scale)

    def count(self, owned: Sequence[OwnedParameters], *, weights: bool) -> None:
        """Count gradients as they lie in ``.grad``, and weights, of some modules."""
        gradients = {owner.module: [dense(p.grad) for p in owner.parameters if p.grad is not None] for owner in owned}
        self._gradients |= _counts_of({module: tensors for module, tensors in gradients.items() if tensors})
        if weights:
            self._weights |= _counts_of({owner.module: list(owner.parameters) for owner in owned})

    def taken(self, step: int, scale: float) -> list[ExponentHistograms]:
        """The histograms of all that was counted, which is forgotten; waits for the device once per kind."""
        counted = {"gradients": self._gradients, "weights": self._weights}
        counted = {"activations": self._taken_activations(), **counted}
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

    def _taken_activations(self) -> dict[str, Tensor]:
        """What was counted in forward, in the order of first outputs."""
        large, small, order = self._activations, _counts_of(self._small), list(self._order)
        self._forget()
        found = {}
        for name in order:
            parts = [counts[name] for counts in (large, small) if name in counts]
            found[name] = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return found

    def _forget(self) -> None:
        self._activations: dict[str, Tensor] = {}
        self._small: dict[str, list[Tensor]] = {}
        self._gradients: dict[str, Tensor] = {}
        self._weights: dict[str, Tensor] = {}
        self._order: dict[str, None] = {}


def _counts_of(tensors: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
    return dict(zip(tensors, grouped_counts(list(tensors.values())), strict=True))
