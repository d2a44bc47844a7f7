"""Functions and classes of torch that make or change tensors and modules."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_core.lint.alternatives import alternatives, only
from amp_core.lint.interpreter import gradients
from amp_core.lint.interpreter.calls import Arguments, unknown_result
from amp_core.lint.interpreter.iteration import element_of
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.module_methods import convert
from amp_core.lint.interpreter.oplists import LOW
from amp_core.lint.interpreter.tensor_methods import fill, floor
from amp_core.lint.interpreter.tensors import cast, is_huge, is_lost, operation
from amp_core.lint.values import HALVES, UNKNOWN, Const, DType, Items, Iterable, Mapping, Object, Tensor, Value

CREATORS = {"zeros", "ones", "empty", "full", "rand", "randn", "eye", "tensor", "as_tensor", "normal", "logspace"}
LIKES = {"zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like"}
CONTAINERS = {"Sequential", "ModuleList"}
NOT_TENSORS = {"is_tensor", "is_available", "manual_seed", "finfo", "iinfo", "is_autocast_enabled", "synchronize"}


def call(machine: Machine, node: ast.Call, name: str, last: str, arguments: Arguments) -> Value:
    """The value of a call of torch."""
    if name.startswith("torch.nn.") and last[:1].isupper():
        return _module(machine, node, name, last, arguments)
    if name.startswith(("torch.cuda.", "torch.backends.", "torch.distributed.", "torch.utils.")) or last in NOT_TENSORS:
        return unknown_result(machine, arguments) if last == "checkpoint" else UNKNOWN
    if last in CREATORS | LIKES or last in {"arange", "linspace", "randint", "randperm"}:
        return _created(machine, node, last, arguments)
    if name.startswith("torch.fft.") or last in {"stft", "istft"}:
        inputs = arguments.positional[:1] or arguments.all[:1]
        operation(machine, node, "fft", inputs)
        return _with_origin(inputs)
    if "out" in arguments.keywords and last in LOW and machine.autocast is not None:
        machine.emit("bypass", node, detail="out=")
    if last == "binary_cross_entropy":
        machine.emit("bce", node)
    first = arguments.get(0, "input")
    if last.endswith("_") and isinstance(first, Tensor) and first.gradient_of is not None:
        gradients.edited(machine, node, first, last, arguments.all[1:])
    if last in {"where", "clamp", "clamp_min", "maximum", "masked_fill"}:
        return _selected(machine, node, last, arguments)
    return _operation(machine, node, last, arguments)


def _operation(machine: Machine, node: ast.Call, last: str, arguments: Arguments) -> Value:
    inputs = [*arguments.positional, *(v for k, v in arguments.keywords.items() if isinstance(v, Tensor))]
    if last in {"cat", "stack", "concat", "hstack", "vstack", "concatenate"} and inputs:
        holder = inputs[0]
        inputs = list(holder.items) if isinstance(holder, Items) else [element_of(holder)]
        found = operation(machine, node, last, inputs)
        return replace(found, positions=any(isinstance(v, Tensor) and v.positions for v in inputs))
    if last == "meshgrid":
        return Items([v for v in inputs if isinstance(v, Tensor)], open=not inputs)
    if last == "Parameter":
        return inputs[0] if inputs and isinstance(inputs[0], Tensor) else Tensor()
    if last == "normalize" and machine.autocast is None:
        _normalize(machine, node, arguments)
    if last in {"isnan", "isinf", "isfinite", "argmax", "argmin", "topk", "sort", "max", "min", "unique", "bincount"}:
        return replace(_with_origin(inputs), dtype=None)
    if not any(isinstance(v, Tensor) for v in inputs) and last not in LOW:
        return _unknown_inputs(machine, last)
    return operation(machine, node, last, inputs)


def _unknown_inputs(machine: Machine, last: str) -> Value:
    region = machine.autocast
    if region is None:
        return UNKNOWN
    return operation(machine, ast.Pass(), last, [UNKNOWN])


def _normalize(machine: Machine, node: ast.Call, arguments: Arguments) -> None:
    """F.normalize with an eps that float16 cannot hold divides zero vectors by zero."""
    tensor, eps = arguments.get(0, "input"), arguments.get(3, "eps")
    if isinstance(tensor, Tensor) and tensor.dtype == "float16" and isinstance(eps, Const) and is_lost(eps.value):
        machine.emit("lost_eps", node, tensor=tensor, detail=node)


def _with_origin(inputs: list[Value]) -> Tensor:
    tensors = [v for v in inputs if isinstance(v, Tensor)]
    return Tensor(
        models=frozenset().union(*(t.models for t in tensors)), regions=frozenset().union(*(t.regions for t in tensors))
    )


def _created(machine: Machine, node: ast.Call, last: str, arguments: Arguments) -> Value:
    """A new tensor, with the dtype asked for or the default."""
    source = arguments.get(0, "input")
    dtype = _asked_dtype(arguments, "float32" if last not in {"randint", "randperm", "tensor", "as_tensor"} else None)
    if last in LIKES and "dtype" not in arguments.keywords:
        dtype = source.dtype if isinstance(source, Tensor) else None
    if last in {"arange", "linspace"}:
        return _positions(machine, node, last, dtype, arguments)
    value = arguments.get(1, "fill_value") if last in {"full", "full_like"} else None
    if last in {"tensor", "as_tensor"}:
        value = source
        if isinstance(source, Items) and source.items:
            value = source.items[0]
        if dtype is None and isinstance(value, Const) and isinstance(value.value, float):
            dtype = "float32"
    if isinstance(source, Tensor) and last == "as_tensor":
        return source
    found = Tensor(dtype)
    return fill(machine, node, found, value) if isinstance(value, Const) else found


def _asked_dtype(arguments: Arguments, default: str | None) -> str | None:
    value = arguments.keywords.get("dtype")
    if value is None:
        return None if arguments.open else default
    one = only(value, DType)
    return one.name if one is not None and len(alternatives(value)) == 1 else None


def _positions(machine: Machine, node: ast.Call, last: str, dtype: str | None, arguments: Arguments) -> Value:
    """Consecutive integers, or coordinates up to a large end: exact only as far as the mantissa reaches."""
    if last == "arange" and "dtype" not in arguments.keywords:
        dtype = "int64"
    end = arguments.get(1, "end") or arguments.get(0, "end")
    extent = int(end.value) if isinstance(end, Const) and isinstance(end.value, int | float) else None
    if last == "linspace" and extent is not None and abs(extent) <= 64:
        return Tensor(dtype)
    found = Tensor("float32" if dtype in HALVES else dtype, positions=True, extent=extent)
    return cast(machine, node, found, dtype) if dtype in HALVES else found


def _selected(machine: Machine, node: ast.Call, last: str, arguments: Arguments) -> Value:
    """Functions that write a constant into a tensor, or bound it by one."""
    inputs = arguments.all
    tensors = [v for v in inputs if isinstance(v, Tensor)]
    if last == "where":
        inputs = inputs[1:]
        tensors = [v for v in inputs if isinstance(v, Tensor)]
    found = operation(machine, node, last, inputs)
    constants = [v for v in inputs if isinstance(v, Const)]
    if last in {"where", "masked_fill"}:
        huge = [c for c in constants if is_huge(c.value)]
        if huge and tensors and tensors[0].dtype == "float16":
            machine.emit("out_of_range", node, tensor=tensors[0], detail=huge[0].value)
        return replace(found, dtype=tensors[0].dtype if len(tensors) == 1 else found.dtype, huge=node if huge else None)
    return floor(node, tensors[0], found, constants[0] if constants else None) if tensors else found


def _module(machine: Machine, node: ast.Call, name: str, last: str, arguments: Arguments) -> Value:
    """A module of torch.nn."""
    if last == "Parameter":
        first = arguments.get(0, "data")
        return first if isinstance(first, Tensor) else Tensor()
    made = Object(name, is_module=True, weights="float32", loops=machine.loops)
    if last in CONTAINERS:
        made.children = tuple(_children(arguments))
        if not made.children:
            made.kind = "torch.nn.Sequential"
            made.weights = None
    dtype = only(arguments.keywords.get("dtype", UNKNOWN), DType)
    if dtype is not None and dtype.name in HALVES:
        convert(machine, node, made, dtype.name)
    sizes = [v.value for v in arguments.positional if isinstance(v, Const) and isinstance(v.value, int)]
    sizes += [v.value for k, v in arguments.keywords.items() if "features" in k and isinstance(v, Const)]
    machine.emit("module", node, model=made, detail=sizes)
    return made


def _children(arguments: Arguments) -> list[Value]:
    if len(arguments.positional) == 1:
        only_one = arguments.positional[0]
        if isinstance(only_one, Items):
            return only_one.items
        if isinstance(only_one, Mapping):
            return list(only_one.items.values())
        if isinstance(only_one, Iterable):
            return [only_one.element]
    return arguments.positional
