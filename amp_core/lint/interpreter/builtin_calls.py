"""Builtins that matter: iteration, containers, numbers, print, super."""

from __future__ import annotations

import ast
from typing import Any

from amp_core.lint.interpreter import tensor_methods
from amp_core.lint.interpreter.calls import Arguments, unknown_result
from amp_core.lint.interpreter.iteration import element_of
from amp_core.lint.interpreter.logging_calls import shown
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.tensors import operation
from amp_core.lint.values import (
    UNKNOWN,
    Const,
    External,
    Items,
    Iterable,
    Mapping,
    Object,
    Parameters,
    Super,
    Tensor,
    Value,
)

SAME = {"list", "tuple", "iter", "reversed", "sorted", "set"}


def call(machine: Machine, node: ast.Call, name: str, arguments: Arguments) -> Value:
    """The value of calling a builtin."""
    first = arguments.get(0)
    if name == "print":
        for value in arguments.positional:
            shown(machine, node, value)
        return Const(None)
    if name == "super":
        return _super(machine)
    if first is None:
        return {"list": Items([]), "tuple": Items([]), "dict": Mapping(dict(arguments.keywords))}.get(name, UNKNOWN)
    if name in SAME:
        return first if isinstance(first, Items | Iterable | Parameters) else Iterable(element_of(first))
    if name == "dict":
        return Mapping({**first.items, **arguments.keywords}, first.open) if isinstance(first, Mapping) else UNKNOWN
    if name == "float" and isinstance(first, Tensor):
        return tensor_methods.read(machine, node, first, "float")
    if name in {"int", "float"} and isinstance(first, Const):
        return _number(name, first.value)
    if name in {"enumerate", "zip", "filter", "map", "next", "range", "sum", "getattr"}:
        return _iteration(machine, node, name, arguments)
    if name in {"abs", "max", "min", "round"} and isinstance(first, Tensor):
        return operation(machine, node, name, arguments.positional)
    if name in {"isinstance", "len", "hasattr", "type", "id", "str", "repr", "issubclass"}:
        return UNKNOWN
    return unknown_result(machine, arguments)


def _number(name: str, value: Any) -> Value:
    try:
        return Const(int(value) if name == "int" else float(value))
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN


def _super(machine: Machine) -> Value:
    for frame in reversed(machine.frames):
        if frame.function is not None:
            owner = frame.function.owner
            return Super(owner) if isinstance(owner, Object) else UNKNOWN
    return UNKNOWN


def _iteration(machine: Machine, node: ast.Call, name: str, arguments: Arguments) -> Value:
    from amp_core.lint.interpreter.calls import call_value

    values = arguments.positional
    if name == "enumerate":
        return Iterable(Items([UNKNOWN, element_of(values[0])]))
    if name == "zip":
        return _zipped(values)
    if name == "filter":
        return values[-1]
    if name == "map" and len(values) > 1:
        with machine.inside(loops=machine.new_loop()):
            return Iterable(call_value(machine, node, values[0], Arguments([element_of(v) for v in values[1:]])))
    if name in {"next", "sum"}:
        return element_of(values[0])
    if name == "getattr" and len(values) > 1 and isinstance(values[1], Const) and isinstance(values[1].value, str):
        return External(f"{values[0].name}.{values[1].value}") if isinstance(values[0], External) else UNKNOWN
    return UNKNOWN


def _zipped(values: list[Value]) -> Value:
    lists = [value.items for value in values if isinstance(value, Items) and not value.open]
    if values and len(lists) == len(values) and len({len(items) for items in lists}) == 1:
        return Items([Items(list(row)) for row in zip(*lists, strict=True)])
    return Iterable(Items([element_of(value) for value in values]))


def chained(_: Machine, __: ast.Call, arguments: Arguments) -> Value:
    """itertools.chain of several iterables: anything in any of them."""
    return Items(list(arguments.positional), open=True)
