"""Methods of models: conversions, modes, parameters, state."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_core.lint.alternatives import alternatives, only, strings
from amp_core.lint.interpreter.calls import Arguments, unknown_result
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import UNKNOWN, Const, DType, Iterable, Object, Parameters, StateDict, Tensor, Value

SHORTHANDS = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}
SAME = {"cuda", "cpu", "eval", "train", "requires_grad_", "apply", "compile", "to_empty", "share_memory", "xpu", "to"}


def call(machine: Machine, node: ast.Call, model: Object, name: str, arguments: Arguments) -> Value:
    """`model.name(…)`."""
    dtype = SHORTHANDS.get(name)
    if name == "to":
        dtype = _dtype_of(arguments)
        _note_device(machine, node, arguments.get(0, "device"))
    elif name in {"cuda", "cpu"}:
        machine.emit("placed", node, model=model, detail=frozenset({name}))
    elif name == "eval" or (name == "train" and isinstance(arguments.get(0), Const)):
        machine.emit("mode", node, model=model, detail="eval")
    elif name == "train":
        machine.emit("mode", node, model=model, detail="train")
    if dtype is not None:
        convert(machine, node, model, dtype)
        return model
    return model if name in SAME else _read(machine, node, model, name, arguments)


def _read(machine: Machine, node: ast.Call, model: Object, name: str, arguments: Arguments) -> Value:
    if name in {"parameters", "named_parameters"}:
        return Parameters(frozenset({model}), named=name == "named_parameters")
    if name == "state_dict":
        return StateDict(model)
    if name in {"modules", "children"}:
        return Iterable(UNKNOWN)
    if name in {"register_buffer", "register_parameter"}:
        _register(model, arguments, is_buffer=name == "register_buffer")
    elif name == "load_state_dict":
        machine.emit("load_state", node, model=model)
    elif name == "zero_grad":
        machine.emit("zero_grad", node, model=model)
    elif name == "clip_grad_norm_":
        machine.emit("clip", node, models=frozenset({model}))
    elif name == "no_sync":
        return UNKNOWN
    elif machine.autocast is not None or arguments.all:
        found = unknown_result(machine, arguments, node)
        return replace(found, models=found.models | {model}) if isinstance(found, Tensor) else found
    return UNKNOWN


def _register(model: Object, arguments: Arguments, *, is_buffer: bool) -> None:
    name, value = arguments.get(0, "name"), arguments.get(1, "tensor", "param")
    if isinstance(name, Const) and isinstance(name.value, str) and value is not None:
        kept = replace(value, is_buffer=is_buffer) if isinstance(value, Tensor) else value
        model.attributes[name.value] = kept


def _dtype_of(arguments: Arguments) -> str | None:
    for value in arguments.all:
        dtype = only(value, DType)
        if dtype is not None and len(alternatives(value)) == 1:
            return str(dtype.name)
    return None


def _note_device(machine: Machine, node: ast.Call, value: Value | None) -> None:
    found = None if value is None else device_names(value)
    if found:
        machine.emit("placed", node, detail=found)


def device_names(value: Value) -> frozenset[str] | None:
    """The device types that a value may name, None if it may be anything."""
    from amp_core.lint.values import Device

    if isinstance(value, Device):
        return value.names
    names = strings(value)
    return None if names is None else frozenset(name.split(":", 1)[0] for name in names)


def convert(machine: Machine, node: ast.AST, model: Object, dtype: str) -> None:
    """The model's weights and floating-point buffers change dtype in place."""
    before = model.weights
    machine.emit("convert", node, model=model, detail=dtype)
    if before != dtype:
        set_weights(model, dtype, set())


def set_weights(model: Object, dtype: str, seen: set[int]) -> None:
    """Set the dtype of a model and of all models in it."""
    if id(model) in seen:
        return
    seen.add(id(model))
    model.weights = dtype
    for child in model.children:
        if isinstance(child, Object):
            set_weights(child, dtype, seen)
    for name, value in model.attributes.items():
        if isinstance(value, Object) and value.is_module:
            set_weights(value, dtype, seen)
        elif isinstance(value, Tensor) and value.dtype is not None and value.dtype.startswith(("float", "bfloat")):
            model.attributes[name] = replace(value, dtype=dtype)
