"""Memory layout of images: channels last, for convolutions that are faster so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.torch_private.tensors import tree_map


def _channels_last(value: Any) -> Any:
    if isinstance(value, Tensor) and value.ndim == 4 and value.is_floating_point():
        return value.contiguous(memory_format=torch.channels_last)
    return value


@contextmanager
def channels_last_inputs(model: nn.Module) -> Iterator[None]:
    """Lay out what enters the model, floating and of shape ``(N, C, H, W)``, with channels last."""

    def enter(_module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return tree_map(_channels_last, args), tree_map(_channels_last, kwargs)

    handle = model.register_forward_pre_hook(enter, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
