"""Method calls by what the receiver is."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amp_core.lint.alternatives import join, only
from amp_core.lint.interpreter import contexts, module_methods, scaler_methods, tensor_methods
from amp_core.lint.interpreter.calls import Arguments, call_value, run_function, unknown_result
from amp_core.lint.interpreter.iteration import element_of
from amp_core.lint.interpreter.logging_calls import note_logged
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import (
    UNKNOWN,
    Class,
    Const,
    Function,
    Items,
    Iterable,
    Mapping,
    Object,
    OneOf,
    Optimizer,
    Scaler,
    Scheduler,
    StateDict,
    Super,
    Tensor,
    Unknown,
    Value,
)


def call_method(machine: Machine, node: ast.Call, receiver: Value, name: str, arguments: Arguments) -> Value:
    """`receiver.name(…)`."""
    note_logged(machine, node, name, arguments)
    if "scale" in name and isinstance(receiver, Unknown):
        found = unknown_result(machine, arguments, node)
        return replace(found, multiplied=True) if isinstance(found, Tensor) else found
    handler = RECEIVERS.get(type(receiver))
    if handler is None:
        return unknown_result(machine, arguments, node)
    return handler(machine, node, receiver, name, arguments)


def _on_one_of(machine: Machine, node: ast.Call, receiver: OneOf, name: str, arguments: Arguments) -> Value:
    options = [v for v in receiver.alternatives if not isinstance(v, Const | Unknown)]
    if not options:
        return unknown_result(machine, arguments, node)
    found = call_method(machine, node, options[0], name, arguments)
    for option in options[1:]:
        found = join(found, call_method(machine, node, option, name, arguments))
    return found


def _on_optimizer(machine: Machine, node: ast.Call, receiver: Optimizer, name: str, arguments: Arguments) -> Value:
    if name == "step":
        if receiver.scaled_by is not None:
            machine.emit("step", node, scaler=receiver.scaled_by, optimizer=receiver)
            machine.emit("update", node, scaler=receiver.scaled_by)
            return UNKNOWN
        closure = arguments.get(0, "closure")
        event = machine.emit("opt_step", node, optimizer=receiver, detail=closure)
        if isinstance(closure, Function):
            before = len(machine.trace.events)
            run_function(machine, closure, [], {})
            event.detail = [e for e in machine.trace.events[before:] if e.kind == "scale"]
    elif name == "zero_grad":
        machine.emit("zero_grad", node, optimizer=receiver)
    elif name == "state_dict":
        return StateDict(receiver)
    elif name == "load_state_dict":
        machine.emit("load_state", node, optimizer=receiver)
    elif name == "add_param_group":
        receiver.models |= scaler_methods.models_in(arguments.all)
    return UNKNOWN


def _on_scheduler(machine: Machine, node: ast.Call, receiver: Scheduler, name: str, arguments: Arguments) -> Value:
    if name == "step":
        machine.emit("sched_step", node, optimizer=only(receiver.optimizer, Optimizer), detail=len(arguments.all))
    return UNKNOWN


def _on_object(machine: Machine, node: ast.Call, receiver: Object, name: str, arguments: Arguments) -> Value:
    from amp_core.lint.interpreter.attributes import attribute

    assert isinstance(node.func, ast.expr)
    if name in receiver.attributes or (receiver.cls is not None and receiver.cls.method(name) is not None):
        reference = ast.Attribute(value=ast.Name(id="", ctx=ast.Load()), attr=name, ctx=ast.Load())
        return call_value(machine, node, attribute(machine, reference, receiver), arguments)
    if receiver.is_module:
        return module_methods.call(machine, node, receiver, name, arguments)
    if isinstance(node.func, ast.Attribute):
        known = attribute(machine, node.func, receiver)
        if not isinstance(known, Unknown):
            return call_value(machine, node, known, arguments)
    return unknown_result(machine, arguments, node)


def _on_super(machine: Machine, node: ast.Call, receiver: Super, name: str, arguments: Arguments) -> Value:
    owner = receiver.owner
    for parent in owner.cls.parents if owner.cls is not None else ():
        method = parent.method(name)
        if method is not None:
            bound = Function(method.node, method.scope, owner)
            return run_function(machine, bound, arguments.positional, arguments.keywords)
    if owner.is_module and name != "__init__":
        return module_methods.call(machine, node, owner, name, arguments)
    return UNKNOWN


def _on_items(machine: Machine, _: ast.Call, receiver: Items, name: str, arguments: Arguments) -> Value:
    if name in {"append", "extend", "insert"}:
        receiver.open = receiver.open or bool(machine.loops) or name != "append"
        if arguments.positional and not receiver.open:
            receiver.items.append(arguments.positional[-1])
    return unknown_result(machine, arguments, None) if name == "pop" else UNKNOWN


def _on_mapping(_: Machine, __: ast.Call, receiver: Mapping, name: str, arguments: Arguments) -> Value:
    values = list(receiver.items.values())
    if name == "update":
        other = arguments.get(0)
        if isinstance(other, Mapping):
            receiver.items.update(other.items)
            receiver.open |= other.open
        elif other is not None:
            receiver.open = True
        receiver.items.update(arguments.keywords)
        return UNKNOWN
    if name == "get":
        key = arguments.get(0)
        return receiver.items.get(key.value, UNKNOWN) if isinstance(key, Const) else UNKNOWN
    if name in {"values", "items"} and values and not receiver.open:
        element = element_of(Items(values))
        if name == "values":
            return Items(values)
        if all(isinstance(k, str) for k in receiver.items):
            return Items([Items([Const(k), v]) for k, v in receiver.items.items()])
        return Iterable(Items([UNKNOWN, element]))
    return UNKNOWN


def _on_class(machine: Machine, node: ast.Call, receiver: Class, name: str, arguments: Arguments) -> Value:
    if name == "apply" and "torch.autograd.Function" in receiver.bases:
        machine.emit("apply", node, detail=receiver)
        found = unknown_result(machine, arguments)
        return replace(found, scaled=None) if isinstance(found, Tensor) else found
    return unknown_result(machine, arguments, node)


def _on_unknown(machine: Machine, node: ast.Call, _: Value, name: str, arguments: Arguments) -> Value:
    if name == "backward" and not arguments.positional:
        machine.emit("backward", node)
        return UNKNOWN
    if name in {"submit", "map"} and arguments.positional and isinstance(arguments.positional[0], Function):
        return tensor_methods.in_thread(machine, node, arguments.positional[0], arguments.positional[1:])
    if name in {"float", "half", "bfloat16", "double", "to", "type"}:
        return tensor_methods.cast_call(machine, node, Tensor(), name, arguments)
    if name == "enter_context" and arguments.positional:
        contexts.stay(machine, arguments.positional[0], node)
        return arguments.positional[0]
    if name == "state_dict":
        return StateDict(UNKNOWN)
    if name in {"named_parameters", "parameters"}:
        return Iterable(Tensor() if name == "parameters" else Items([UNKNOWN, Tensor()]))
    return unknown_result(machine, arguments, node)


RECEIVERS: dict[type[Value], Callable[[Machine, ast.Call, Any, str, Arguments], Value]] = {
    Scaler: scaler_methods.call,
    Optimizer: _on_optimizer,
    Scheduler: _on_scheduler,
    Object: _on_object,
    Tensor: tensor_methods.call,
    Super: _on_super,
    Items: _on_items,
    Mapping: _on_mapping,
    OneOf: _on_one_of,
    Class: _on_class,
    Unknown: _on_unknown,
}
