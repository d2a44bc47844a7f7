"""The fp16 copies of weights that live for one outermost autocast region, as autocast's own cache keeps them.

One copy per weight and region means that all gradients of a weight used several times are added up in fp16 before they
are cast to the FP32 weight: overflow and underflow happen where they happen on CUDA. A weight changed inside the region
keeps its old copy, also as on CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_casts: dict[tuple[int, bool], tuple[Tensor, Tensor]] = {}
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


def to_half(tensor: Tensor) -> Tensor:
    """The tensor in fp16, from the region's copies where autocast would cache it (FP32 leaves that require grad)."""
    if tensor.dtype is torch.float16:
        return tensor
    if not (
        _depth
        and tensor.requires_grad
        and tensor.is_leaf
        and tensor.dtype is torch.float32
        and not tensor._is_view()
        and torch.is_autocast_cache_enabled()
    ):
        return tensor.half()
    key = (id(tensor), torch.is_grad_enabled())
    held = _casts.get(key)
    if held is None:
        held = _casts[key] = (tensor, tensor.half())
    return held[1]
