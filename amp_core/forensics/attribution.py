"""To which module an operation, an autograd node or an exception belongs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import nn

from amp_core.precision import kernels
from amp_core.torch_private import autograd


@dataclass(frozen=True, slots=True)
class CaughtError:
    """An exception of the diagnosed code: its first line, and the innermost module that was running."""

    type: str
    message: str
    module: str | None
    function: str


def caught(error: BaseException, model: nn.Module) -> CaughtError:
    """Where an exception came from. A module is found by the first argument of the functions on the traceback."""
    names = {id(module): name for name, module in model.named_modules()}
    module: str | None = None
    function = ""
    step = error.__traceback__
    while step is not None:
        found = _module_of(step.tb_frame, names)
        module = found if found is not None else module
        if step.tb_frame.f_code.co_filename != kernels.__file__:
            function = step.tb_frame.f_code.co_name
        step = step.tb_next
    lines = str(error).strip().splitlines()
    return CaughtError(type(error).__name__, lines[0] if lines else "", module, function)


def _module_of(frame: FrameType, names: dict[int, str]) -> str | None:
    code = frame.f_code
    if not code.co_argcount:
        return None
    return names.get(id(frame.f_locals.get(code.co_varnames[0])))


class ModuleClock:
    """Which module is running now, and which one was running when an autograd node was created.

    Every autograd node of a thread gets the next sequence number, so noting the number at each entry and exit of a
    module tells the module of any node, custom functions included. Nothing is attached to the graph.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._owners = {id(p): name.rpartition(".")[0] for name, p in model.named_parameters()}
        self._leaf = torch.ones((), requires_grad=True)
        self._starts: list[int] = []
        self._modules: list[str | None] = []
        self._stack: list[str | None] = [None]
        self.paused = False
        self.input_dtypes: dict[str, tuple[torch.dtype | None, ...]] = {}
        self.order: list[str] = []

    @property
    def module(self) -> str | None:
        """The innermost module that is running; None outside the model."""
        return self._stack[-1]

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles: list[Any] = []
        for module in self._names:
            handles.append(module.register_forward_pre_hook(self._enter, prepend=True))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        self._mark()
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def module_of(self, node: Any) -> str | None:
        """The module that created an autograd node, or owns the parameter that it fills."""
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) in self._owners:
            return self._owners[id(variable)]
        index = bisect_right(self._starts, autograd.number_of(node)) - 1
        return self._modules[index] if index >= 0 else None

    def _enter(self, module: nn.Module, args: Any) -> None:
        name = self._names[module]
        self._stack.append(name)
        if name not in self.input_dtypes:
            self.order.append(name)
            self.input_dtypes[name] = tuple(
                a.dtype if isinstance(a, torch.Tensor) and a.is_floating_point() else None for a in args
            )
        self._mark()

    def _leave(self, _module: nn.Module, _args: Any, _output: Any) -> None:
        self._stack.pop()
        self._mark()

    def _mark(self) -> None:
        self.paused = True
        with torch.enable_grad():
            node = (self._leaf * 1).grad_fn
        self.paused = False
        assert node is not None
        self._starts.append(autograd.number_of(node))
        self._modules.append(self.module)
