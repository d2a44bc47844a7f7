"""What each kind of autocast rule does to an operation on CPU tensors in emulated fp16.

A rule is a kernel for the AutocastCPU dispatch key. It changes the inputs, calls the operation below autocast, and may
round the result; every cast is an ordinary differentiable one, so that backward passes through the same roundings.
Doubles are left alone, as autocast leaves them. Inside a region that a workload opens for bfloat16, products run in the
CPU's own bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from amp_core.precision.weight_casts import lowered
from amp_core.torch_private.dispatcher import key_set, keys_after, without
from amp_core.torch_private.tensors import tree_leaves, tree_map

Kernel = Callable[..., Any]

_AUTOCAST = key_set("AutocastCPU")
_AFTER_AUTOCAST = keys_after("AutocastCPU")
_LOW = (torch.float16, torch.bfloat16)
_inside_chain = False


def tensor_core(op: Any) -> Kernel:
    """Inputs rounded to fp16, product and accumulation in fp32, result rounded to fp16."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("cpu")
        with without(_AUTOCAST):
            if dtype is not torch.float16:
                args, kwargs = _lowered((args, kwargs), dtype)
                return op(*args, **kwargs)
            wide = [_rounded(arg) for arg in args]
            if kwargs:
                kwargs = {name: _rounded(arg) for name, arg in kwargs.items()}
            return _round(op(*wide, **kwargs))

    return kernel


def tensor_core_chain(op: Any) -> Kernel:
    """Several products in one operation: its own products meet `tensor_core` again, and nothing else is touched."""

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        global _inside_chain  # noqa: PLW0603 - see weight_casts: one run, one thread
        args, kwargs = _lowered((args, kwargs), torch.get_autocast_dtype("cpu"))
        outer, _inside_chain = _inside_chain, True
        try:
            return op.redispatch(keyset & _AFTER_AUTOCAST, *args, **kwargs)
        finally:
            _inside_chain = outer

    return kernel


def fp32(op: Any) -> Kernel:
    """Half-precision inputs cast up, result in fp32."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with without(_AUTOCAST):
            if not _inside_chain:
                args = tuple(_cast_up(arg) for arg in args)
                if kwargs:
                    kwargs = {name: _cast_up(arg) for name, arg in kwargs.items()}
            return op(*args, **kwargs)

    return kernel


def promote(op: Any) -> Kernel:
    """All inputs in the widest type among them."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with without(_AUTOCAST):
            if not _inside_chain and _any_fp32((args, kwargs)):
                args, kwargs = tree_map(_up, (args, kwargs))
            return op(*args, **kwargs)

    return kernel


def promote_product(op: Any) -> Kernel:
    """`promote`, and where all inputs are fp16, a product as in `tensor_core`."""
    wide, product = promote(op), tensor_core(op)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        in_fp16 = all(leaf.dtype is torch.float16 for leaf in leaves if leaf.is_floating_point())
        return product(*args, **kwargs) if in_fp16 else wide(*args, **kwargs)

    return kernel


def half_on_cuda(op: Any) -> Kernel:
    """An operation without a rule on CUDA and without an fp16 kernel here: fp16 inputs give an fp16 result."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with without(_AUTOCAST):
            if not any(isinstance(leaf, Tensor) and leaf.dtype is torch.float16 for leaf in tree_leaves(args)):
                return op(*args, **kwargs)
            args, kwargs = tree_map(_up, (args, kwargs))
            return _round(op(*args, **kwargs))

    return kernel


def banned(op: Any) -> Kernel:
    """Refuse, as CUDA does."""
    name = op.overloadpacket.__name__

    def kernel(*_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError(
            f"{name} (BCELoss) is refused under 16-mixed, as CUDA's autocast refuses it: its probabilities round to 0 "
            "or 1 in fp16; use binary_cross_entropy_with_logits (BCEWithLogitsLoss) on the logits instead"
        )

    return kernel


def _lowered(values: Any, dtype: torch.dtype) -> Any:
    def lower(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not torch.float64:
            return lowered(value, dtype)
        return value

    return tree_map(lower, values)


def _rounded(value: Any) -> Any:
    """The fp16-rounded value as fp32, so that the operation accumulates in fp32."""
    if isinstance(value, Tensor):
        if value.is_floating_point() and value.dtype is not torch.float64:
            return lowered(value, torch.float16).float()
        return value
    if isinstance(value, list | tuple):
        return type(value)(_rounded(part) for part in value)
    return value


def _round(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result.half() if result.dtype is torch.float32 else result
    if isinstance(result, list | tuple):
        return type(result)(_round(part) for part in result)
    return result


def _up(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in _LOW else value


def _cast_up(value: Any) -> Any:
    return tree_map(_up, value) if isinstance(value, list | tuple) else _up(value)


def _any_fp32(values: Any) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.dtype is torch.float32 for leaf in tree_leaves(values))
