"""Operations kept in FP32 under autocast, by name: rules of our own at the place where autocast keeps its lists.

A rule covers every overload of an operation that returns new tensors. It casts half-precision inputs up, calls the
operation below autocast and leaves the result in FP32, as autocast does for the operations on its own FP32 list. What
a fused operation does inside is not seen there: the rule is for the operation that is called.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.library import Library

from amp_core.errors import RecipeError
from amp_core.precision.fp32_modules import LOW_DTYPES
from amp_core.torch_private.dispatcher import key_set, operation_names, schema, withdraw, without
from amp_core.torch_private.tensors import tree_map

KEYS = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
_installed: tuple[str, tuple[str, ...], KeptOps] | None = None


class KeptOps:
    """The rules in force: how often each name of the recipe was called."""

    def __init__(self, names: Sequence[str]) -> None:
        self.calls = dict.fromkeys(names, 0)

    def never_called(self) -> list[str]:
        """Names that no call has met so far: such a rule changes nothing."""
        return [name for name, calls in self.calls.items() if not calls]


def overloads(name: str) -> list[Any]:
    """The overloads of ``torch.ops.aten`` meant by ``softmax``, ``aten.sum`` or ``aten.sum.dim_IntList``.

    Raises:
        RecipeError: for an operation this torch does not have, with the nearest names, or one that works in place.
    """
    plain = name.removeprefix("aten::").removeprefix("aten.")
    base, _, overload = plain.partition(".")
    known = aten_operations()
    if base not in known:
        near = difflib.get_close_matches(base, known, n=3, cutoff=0.5)
        listed = f": names nearest to it are {', '.join(near)}" if near else ""
        raise RecipeError(f"fp32_ops {name!r} is no operation of torch.ops.aten in torch {torch.__version__}{listed}")
    if overload and overload not in known[base]:
        raise RecipeError(f"fp32_ops {name!r}: aten.{base} has the overloads {', '.join(sorted(known[base]))}")
    packet = getattr(torch.ops.aten, base)
    chosen = [getattr(packet, one) for one in ([overload] if overload else sorted(known[base]))]
    pure = [op for op in chosen if not schema(op).is_mutable]
    if not pure:
        raise RecipeError(
            f"fp32_ops {name!r} writes into a tensor it is given, whose type is fixed: choose the operation that "
            f"returns a new one{f', {base[:-1]}' if base.endswith('_') else ''}"
        )
    return pure


@cache
def aten_operations() -> dict[str, tuple[str, ...]]:
    """Names of the overloads of every operation under ``aten``."""
    found: dict[str, list[str]] = {}
    for full in operation_names():
        if full.startswith("aten::"):
            base, _, overload = full.removeprefix("aten::").partition(".")
            found.setdefault(base, []).append(overload or "default")
    return {base: tuple(names) for base, names in found.items()}


def spelled(op: Any) -> str:
    """An overload as `torch.library.Library.impl` wants it: ``sum.dim_IntList``, ``relu``."""
    name, overload = schema(op).name.removeprefix("aten::"), schema(op).overload_name
    return f"{name}.{overload}" if overload else name


@contextmanager
def keep_ops_in_fp32(names: Sequence[str], device_type: str) -> Iterator[KeptOps]:
    """The rules for the whole process while the context is open; others at the same time are an error.

    Raises:
        RecipeError: for a name that `overloads` refuses.
    """
    global _installed  # noqa: PLW0603 - the dispatcher is global, so is what was put there
    key, wanted = KEYS[device_type], tuple(sorted(names))
    if _installed is not None:
        if _installed[:2] != (key, wanted):
            raise RuntimeError(f"FP32 rules for {', '.join(_installed[1])} are in force: leave them before others")
        yield _installed[2]
        return
    rules = [(name, op) for name in wanted for op in overloads(name)]
    kept, library = KeptOps(wanted), Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name, op in rules:
            library.impl(spelled(op), _rule(op, name, kept, key), key, allow_override=True)  # type: ignore[no-untyped-call]
    _installed = (key, wanted, kept)
    try:
        yield kept
    finally:
        withdraw(library)
        _installed = None


def _rule(op: Any, name: str, kept: KeptOps, key: str) -> Any:
    autocast = key_set(key)
    calls = kept.calls

    def kernel(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        with without(autocast):
            args, kwargs = tree_map(_up, (args, kwargs))
            return op(*args, **kwargs)

    return kernel


def _up(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in LOW_DTYPES else value
