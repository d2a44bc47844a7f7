"""Memory of a run: the process, the device, and what autograd keeps for backward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from torch import Tensor, nn

_CAST_OR_VIEW = frozenset({"ToCopyBackward0", "TBackward0", "TransposeBackward0", "PermuteBackward0", "ViewBackward0"})


def process_bytes() -> int:
    """Resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def device_peak_bytes(device: torch.device) -> int:
    """Most bytes allocated on a CUDA device since the last call."""
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return int(peak)


def bytes_by_part(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, int]:
    """Bytes of ``weights`` (parameters and buffers), ``gradients`` and ``optimizer`` state as they are now."""
    state = [value for one in optimizers for group in one.state.values() for value in group.values()]
    parts = {
        "weights": [*model.parameters(), *model.buffers()],
        "gradients": [p.grad for p in model.parameters() if p.grad is not None],
        "optimizer": [value for value in state if isinstance(value, Tensor)],
    }
    return {name: sum(_num_bytes(tensor) for tensor in tensors) for name, tensors in parts.items()}


def _num_bytes(tensor: Tensor) -> int:
    held = tensor.coalesce().values() if tensor.is_sparse else tensor
    return held.numel() * held.element_size()


class SavedBytes:
    """Bytes autograd saved for backward inside the context, each storage once, parameters and buffers excluded.

    ``total`` holds the low-precision copies of weights that autocast makes; ``weight_copies`` says how much of it they
    are. ``until_backward``: count the first forward pass only, where several batches make one step.
    """

    def __init__(self, model: nn.Module, *, until_backward: bool = False) -> None:
        self._until_backward = until_backward
        self._is_over = False
        self._excluded = {_key(t) for t in [*model.parameters(), *model.buffers()]}
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self._storages: dict[tuple[str, int], int] = {}
        self._copies: set[tuple[str, int]] = set()
        self._kept: list[Tensor] = []

    @property
    def total(self) -> int:
        return sum(self._storages.values())

    @property
    def weight_copies(self) -> int:
        return sum(self._storages[key] for key in self._copies)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the forward passes run inside; their results do not change."""
        with torch.autograd.graph.saved_tensors_hooks(self._note, self._release):
            yield
        self._kept.clear()

    def _note(self, tensor: Tensor) -> Tensor:
        key = _key(tensor)
        if not self._is_over and key not in self._excluded and tensor.layout is torch.strided:
            self._storages[key] = tensor.untyped_storage().nbytes()
            if self._is_weight(tensor.grad_fn):
                self._copies.add(key)
            self._kept.append(tensor.detach())  # or a freed storage's address might be counted as another one's
        return tensor

    def _is_weight(self, node: Any) -> bool:
        """Whether a saved tensor is a parameter but for casts and views, by the nodes that made it."""
        while node is not None and node.name() in _CAST_OR_VIEW:
            node = node.next_functions[0][0]
        return node is not None and id(getattr(node, "variable", None)) in self._parameters

    def _release(self, tensor: Tensor) -> Tensor:
        self._is_over = self._until_backward
        self._kept.clear()  # backward has begun: hold nothing longer than autograd does
        return tensor


def _key(tensor: Tensor) -> tuple[str, int]:
    if tensor.layout is not torch.strided:
        return str(tensor.layout), id(tensor)
    return str(tensor.device), tensor.untyped_storage().data_ptr()
