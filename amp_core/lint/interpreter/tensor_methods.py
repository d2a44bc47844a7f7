"""Methods of tensors."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_core.lint.alternatives import alternatives, only
from amp_core.lint.interpreter import gradients
from amp_core.lint.interpreter.calls import Arguments, run_function
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.module_methods import SHORTHANDS
from amp_core.lint.interpreter.oplists import LOW, SHAPES
from amp_core.lint.interpreter.tensors import cast, is_huge, is_lost, operation
from amp_core.lint.values import HALVES, UNKNOWN, Const, DType, Function, Iterable, Tensor, Value

READINGS = {"item", "detach", "cpu", "numpy", "tolist"}
FILLS = {"masked_fill": 1, "masked_fill_": 1, "fill_": 0, "new_full": 1, "index_fill": 2, "index_fill_": 2}
FLOORS = {"clamp", "clamp_", "clamp_min", "clamp_min_", "maximum", "clip"}
IN_PLACE_LOW = {f"{name}_" for name in LOW}


def call(machine: Machine, node: ast.Call, tensor: Tensor, name: str, arguments: Arguments) -> Value:
    """`tensor.name(…)`."""
    if name == "backward":
        machine.emit("backward", node, tensor=tensor)
        return UNKNOWN
    if name in SHORTHANDS or name in {"to", "type", "type_as"}:
        return cast_call(machine, node, tensor, name, arguments)
    if name in READINGS:
        return read(machine, node, tensor, name)
    if name.endswith("_") and not name.endswith("__"):
        _in_place(machine, node, tensor, name, arguments)
    if name in FILLS:
        return fill(machine, node, tensor, arguments.get(FILLS[name], "value", "fill_value"))
    if name in {"size", "dim", "numel", "data_ptr", "stride", "element_size", "get_device", "nelement"}:
        return Tensor(is_number=True)
    if name in {"stft", "istft"}:
        operation(machine, node, "fft", [tensor])
        return Tensor(models=tensor.models, regions=tensor.regions)
    if name in {"chunk", "split", "unbind"}:
        return Iterable(operation(machine, node, name, [tensor]))
    if name in {"long", "int", "bool", "argmax", "argmin", "isnan", "isinf", "isfinite", "eq", "gt", "lt", "ge", "le"}:
        return Tensor("int64", tensor.models, tensor.regions)
    return method_result(machine, node, tensor, name, arguments)


def method_result(machine: Machine, node: ast.Call, tensor: Tensor, name: str, arguments: Arguments) -> Tensor:
    """The result of any other operation called as a method."""
    base = name.rstrip("_") if name not in SHAPES else name
    others = [value for value in arguments.all if isinstance(value, Tensor)] if base not in SHAPES else []
    found = operation(machine, node, base, [tensor, *others])
    if name in FLOORS:
        return floor(node, tensor, found, arguments.get(0, "min", "other"))
    if base in {"eps", "add"} and isinstance(constant := arguments.get(0, "other"), Const):
        return _plus_constant(machine, node, tensor, constant)
    if name.endswith("_") and tensor.parameter_of is not None:
        return replace(found, parameter_of=tensor.parameter_of)
    return found


def _plus_constant(machine: Machine, node: ast.Call, tensor: Tensor, constant: Const) -> Tensor:
    """`tensor.add(c)` is `tensor + c`."""
    from amp_core.lint.interpreter.operators import combine

    found = combine(machine, node, ast.Add(), tensor, constant)
    assert isinstance(found, Tensor)
    return found


def cast_call(machine: Machine, node: ast.Call, tensor: Tensor, name: str, arguments: Arguments) -> Value:
    """`.half()`, `.to(…)`, `.type(…)`: the dtype asked for, if one was."""
    dtype = SHORTHANDS.get(name)
    asked = False
    for value in arguments.all if dtype is None else ():
        one = only(value, DType)
        if one is not None:
            asked = True
            dtype = one.name if len(alternatives(value)) == 1 else None
        elif isinstance(value, Tensor) and name in {"to", "type_as"}:
            asked, dtype = True, value.dtype
    if dtype is None:
        if name == "to" and not asked and all(isinstance(v, Const) for v in arguments.all):
            return tensor
        return replace(tensor, dtype=None, positions=False)
    return cast(machine, node, tensor, dtype)


def read(machine: Machine, node: ast.AST, tensor: Tensor, name: str) -> Value:
    """A value leaves the graph, perhaps with its loss scale."""
    if tensor.gradient_of is not None and name == "item":
        machine.emit("grad_item", node, tensor=tensor)
    number = name in {"item", "tolist", "float"}
    reading = tensor.reading
    if name in {"detach", "cpu"}:
        return replace(tensor, detached=True)
    if tensor.scaled is not None and reading is None and not tensor.from_grad:
        reading = machine.emit("scaled_read", node, tensor=tensor)
    return replace(
        tensor, is_number=number or tensor.is_number, dtype=None if number else tensor.dtype, reading=reading
    )


def fill(machine: Machine, node: ast.AST, tensor: Tensor, value: Value | None) -> Tensor:
    """A constant is written into the tensor."""
    if isinstance(value, Const) and is_huge(value.value):
        if tensor.dtype == "float16":
            machine.emit("out_of_range", node, tensor=tensor, detail=value.value)
        return replace(tensor.plain(), huge=node)
    return tensor.plain()


def floor(node: ast.AST, tensor: Tensor, found: Tensor, value: Value | None) -> Tensor:
    """A lower bound that rounds to zero protects from nothing."""
    if isinstance(value, Const):
        if tensor.dtype == "float16" and is_lost(value.value):
            return replace(found, lost_eps=node)
        return replace(found, complement=None, lost_eps=None)
    return found


def _in_place(machine: Machine, node: ast.Call, tensor: Tensor, name: str, arguments: Arguments) -> None:
    if tensor.gradient_of is not None:
        gradients.edited(machine, node, tensor, name, arguments.all)
    if name in IN_PLACE_LOW and machine.autocast is not None:
        machine.emit("bypass", node, detail=name)
    elif tensor.dtype in HALVES and (name == "lerp_" or (name == "add_" and _decays_first(node))):
        machine.emit("average", node, tensor=tensor)


def _decays_first(node: ast.Call) -> bool:
    """`average.mul_(decay).add_(value, alpha=1 - decay)`."""
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    decays = (
        isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute) and receiver.func.attr == "mul_"
    )
    return decays and (
        any(k.arg == "alpha" for k in node.keywords) or (bool(node.args) and isinstance(node.args[0], ast.BinOp))
    )


def in_thread(machine: Machine, node: ast.AST, function: Function, positional: list[Value]) -> Value:
    """A function handed to another thread: autocast of this thread is not in force there."""
    outer = machine.autocast
    before = len(machine.trace.events)
    with machine.inside(regions=()):
        run_function(machine, function, positional, {})
    inner = machine.trace.events[before:]
    forwards = [event for event in inner if event.kind == "forward" and not event.context.regions]
    if outer is not None and forwards:
        machine.emit("thread", node, model=forwards[0].model)
    return UNKNOWN
