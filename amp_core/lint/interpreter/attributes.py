"""Attributes of every kind of value."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_core.lint.alternatives import join
from amp_core.lint.interpreter import gradients
from amp_core.lint.interpreter.ducks import path_of
from amp_core.lint.interpreter.imports import external
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import (
    UNKNOWN,
    Bound,
    Class,
    Const,
    Device,
    DType,
    External,
    Function,
    Iterable,
    Mapping,
    Object,
    OneOf,
    Optimizer,
    Parameters,
    Scaler,
    Tensor,
    Unknown,
    Value,
)

KNOWN_ROOTS = {"torch", "builtins", "torchvision", "transformers", "accelerate", "copy", "contextlib", "math", "numpy"}
VIEWS = {"data", "T", "mT", "real", "imag", "H", "mH"}


def attribute(machine: Machine, node: ast.Attribute, owner: Value) -> Value:
    """`owner.attr`."""
    name = node.attr
    if isinstance(owner, External):
        return _external(machine, node, owner)
    if isinstance(owner, Object):
        return _of_object(machine, node, owner)
    if isinstance(owner, Tensor):
        return _of_tensor(owner, name)
    if isinstance(owner, Optimizer) and name == "param_groups":
        return Iterable(Mapping({"params": Parameters(owner.models)}, open=True))
    if isinstance(owner, Scaler | Optimizer):
        return Bound(owner, name)
    if isinstance(owner, Device):
        return _names(owner) if name == "type" else UNKNOWN
    if isinstance(owner, Class):
        return owner.method(name) or owner.scope.names.get(name) or Bound(owner, name)
    if isinstance(owner, OneOf):
        return _of_alternatives(machine, node, owner)
    if isinstance(owner, Unknown):
        if name == "grad":
            return gradients.gradient_of(owner)
        text = path_of(node)
        return machine.remembered(text) if text else UNKNOWN
    return UNKNOWN


def _external(machine: Machine, node: ast.Attribute, owner: External) -> Value:
    if owner.name.split(".", 1)[0] not in KNOWN_ROOTS:
        text = path_of(node)
        if text and not isinstance(found := machine.remembered(text), Unknown):
            return found
    return external(f"{owner.name}.{node.attr}")


def _of_object(machine: Machine, node: ast.Attribute, owner: Object) -> Value:
    name = node.attr
    if name in owner.attributes:
        found = owner.attributes[name]
        return UNKNOWN if isinstance(found, Const) and name in machine.mutable_attributes else found
    if owner.cls is not None:
        method = owner.cls.method(name)
        if method is not None:
            return _method(machine, method, owner)
        inherited = _class_attribute(owner.cls, name)
        if inherited is not None:
            return inherited
    if name == "module" and owner.is_module:
        return owner
    made = machine.ducks.value_for(path_of(node), machine.loops)
    if made is not None:
        owner.attributes[name] = made
        return made
    return Bound(owner, name) if owner.is_module else UNKNOWN


def _class_attribute(cls: Class, name: str) -> Value | None:
    if name in cls.scope.names:
        return cls.scope.names[name]
    for parent in cls.parents:
        if (found := _class_attribute(parent, name)) is not None:
            return found
    return None


def _method(machine: Machine, method: Function, owner: Object) -> Value:
    from amp_core.lint.interpreter.calls import run_function

    bound = Function(method.node, method.scope, owner)
    decorators = getattr(method.node, "decorator_list", [])
    names = {path_of(d) for d in decorators}
    if "staticmethod" in names:
        return method
    if names & {"property", "cached_property", "functools.cached_property"}:
        return run_function(machine, bound, [], {})
    return bound


def _of_tensor(owner: Tensor, name: str) -> Value:
    if name == "grad":
        return gradients.gradient_of(owner)
    if name in VIEWS:
        return owner if name == "data" else replace(owner.plain(), parameter_of=owner.parameter_of)
    if name == "dtype":
        return UNKNOWN if owner.dtype is None else DType(owner.dtype)
    return UNKNOWN


def _of_alternatives(machine: Machine, node: ast.Attribute, owner: OneOf) -> Value:
    found: Value | None = None
    for value in owner.alternatives:
        if isinstance(value, Const) and value.value is None:
            continue
        one = attribute(machine, node, value)
        found = one if found is None else join(found, one)
    return UNKNOWN if found is None else found


def _names(device: Device) -> Value:
    options = [Const(name) for name in sorted(device.names)]
    return options[0] if len(options) == 1 else OneOf(tuple(options))
