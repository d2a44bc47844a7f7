"""Modules kept in FP32 inside a mixed-precision model: inputs cast up, autocast off, outputs left in FP32."""

from __future__ import annotations

import difflib
import fnmatch
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.errors import RecipeError
from amp_core.torch_private.tensors import tree_map

LOW_DTYPES = (torch.float16, torch.bfloat16)
_open = threading.local()  # autocast contexts of the kept modules that are running, innermost last


def matching_modules(model: nn.Module, patterns: Sequence[str], field: str) -> dict[str, nn.Module]:
    """Modules by name for every name or glob (``blocks.*.norm``) of a recipe's field; ``*`` crosses dots.

    Raises:
        RecipeError: for a pattern that matches nothing, with the nearest names.
    """
    modules = {name: module for name, module in model.named_modules() if name}
    chosen: dict[str, nn.Module] = {}
    for pattern in patterns:
        names = [name for name in modules if fnmatch.fnmatchcase(name, pattern)]
        if not names:
            near = difflib.get_close_matches(pattern, modules, n=3, cutoff=0.4) or list(modules)[:3]
            listed = ", ".join(repr(name) for name in near) or "none: the model has no submodules"
            raise RecipeError(
                f"{field} pattern {pattern!r} matches no module of {type(model).__name__}: "
                f"names nearest to it are {listed}"
            )
        chosen.update((name, modules[name]) for name in names)
    return chosen


def _raise_low(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype in LOW_DTYPES else value


@contextmanager
def keep_in_fp32(modules: Iterable[nn.Module], device_type: str) -> Iterator[None]:
    """Run the modules in FP32 while the context is open. Copies of a module made meanwhile keep the behaviour.

    Inside a model whose weights are stored low, nothing casts their outputs down again, so that is done here.
    """

    def enter(_module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        context = torch.autocast(device_type, enabled=False)
        context.__enter__()  # type: ignore[no-untyped-call]
        _stack().append(context)
        return tree_map(_raise_low, args), tree_map(_raise_low, kwargs)

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        _stack().pop().__exit__(None, None, None)
        low = torch.get_default_dtype()  # what `true_low` sets while such a model runs
        if low not in LOW_DTYPES:
            return output
        return tree_map(lambda v: v.to(low) if isinstance(v, Tensor) and v.is_floating_point() else v, output)

    handles = []
    for module in modules:
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _stack() -> list[Any]:
    stack: list[Any] | None = getattr(_open, "stack", None)
    if stack is None:
        stack = _open.stack = []
    return stack
