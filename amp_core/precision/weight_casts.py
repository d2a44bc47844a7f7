"""Lower-precision copies of weights that live for one outermost autocast region, as autocast's own cache keeps them.

One copy per weight and region means that all gradients of a weight used several times are added up in that type before
they are cast to the FP32 weight: overflow and underflow happen where they happen on CUDA. A weight changed inside the
region keeps its old copy, also as on CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from amp_core.torch_private.tensors import is_view

_casts: dict[tuple[int, torch.dtype, bool], tuple[Tensor, Tensor]] = {}
_depth = 0


@contextmanager
def region() -> Iterator[None]:
    """An autocast region; leaving the outermost one drops the copies. Regions of one run belong to one thread."""
    global _depth  # noqa: PLW0603 - one run per process, and the operator rules it serves are global too
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if _depth == 0:
            _casts.clear()


def lowered(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in ``dtype``, from the region's copies where autocast caches it (FP32 leaves that require grad)."""
    if tensor.dtype is dtype:
        return tensor
    if not (
        _depth
        and tensor.requires_grad
        and tensor.is_leaf
        and tensor.dtype is torch.float32
        and not is_view(tensor)
        and torch.is_autocast_cache_enabled()
    ):
        return tensor.to(dtype)
    key = (id(tensor), dtype, torch.is_grad_enabled())
    held = _casts.get(key)
    if held is None:
        held = _casts[key] = (tensor, tensor.to(dtype))
    return held[1]
