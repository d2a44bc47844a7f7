"""The matrix product behind a call of a torch function, with its sizes."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from amp_core.forensics.speed_advice import Product

_MATRIX = frozenset(["matmul", "mm", "bmm", "__matmul__", "__rmatmul__"])
_ADDED = frozenset(["addmm", "addbmm", "baddbmm"])


def product_of(func: Any, args: Any, kwargs: Any) -> Product | None:
    """The product that ``func(*args, **kwargs)`` computes, or None if it is none."""
    name = getattr(func, "__name__", "")
    tensors = [leaf for leaf in [*args, *kwargs.values()] if isinstance(leaf, Tensor)]
    if name == "linear" and len(tensors) >= 2:
        return _linear(tensors[0], tensors[1])
    if name in _MATRIX and len(tensors) >= 2:
        return _matrix(tensors[0], tensors[1])
    if name in _ADDED and len(tensors) >= 3:
        return _matrix(tensors[1], tensors[2])
    if name.startswith("conv") and name[4:5].isdigit() and len(tensors) >= 2:
        return _convolution(tensors[0], tensors[1])
    return None


def _linear(inputs: Tensor, weight: Tensor) -> Product | None:
    if weight.ndim != 2 or not inputs.ndim:
        return None
    return Product(m=inputs.numel() // max(1, inputs.shape[-1]), n=weight.shape[0], k=weight.shape[1])


def _matrix(left: Tensor, right: Tensor) -> Product | None:
    if left.ndim < 2 or right.ndim < 2:
        return None
    batch = math.prod(left.shape[:-2]) if left.ndim > 2 and right.ndim > 2 else 1
    rows = left.shape[-2] if batch > 1 or left.ndim == 2 else left.numel() // max(1, left.shape[-1])
    return Product(m=rows, n=right.shape[-1], k=left.shape[-1], batch=batch)


def _convolution(inputs: Tensor, weight: Tensor) -> Product | None:
    """As the implicit product of a convolution: rows are positions (stride 1 assumed), columns output channels."""
    if weight.ndim < 3 or inputs.ndim != weight.ndim:
        return None
    positions = inputs.shape[0] * math.prod(inputs.shape[2:])
    return Product(m=positions, n=weight.shape[0], k=math.prod(weight.shape[1:]))


class ProductCollector(TorchFunctionMode):
    """Notes every matrix product that torch functions are asked for inside ``with``."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        product = product_of(func, args, kwargs or {})
        if product is not None:
            self.products.append(product)
        return func(*args, **(kwargs or {}))
