"""Methods of GradScaler, and of framework objects that scale by themselves."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_core.lint.alternatives import alternatives, only
from amp_core.lint.interpreter.calls import Arguments
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import (
    UNKNOWN,
    Autocast,
    Const,
    Items,
    Iterable,
    Mapping,
    Object,
    Optimizer,
    Parameters,
    Scaled,
    Scaler,
    ScaleValue,
    StateDict,
    Tensor,
    Value,
)


def call(machine: Machine, node: ast.Call, scaler: Scaler, name: str, arguments: Arguments) -> Value:
    """`scaler.name(…)`."""
    if scaler.kind != "GradScaler":
        return _framework(machine, node, scaler, name, arguments)
    first = arguments.get(0, "outputs", "optimizer")
    if name == "state_dict":
        machine.emit("scaler_state", node, scaler=scaler)
        return StateDict(scaler)
    if name == "load_state_dict":
        machine.emit("scaler_load", node, scaler=scaler)
    elif name == "get_scale":
        machine.emit("get_scale", node, scaler=scaler)
        return ScaleValue(scaler, scaler.updates)
    elif name == "is_enabled":
        return UNKNOWN if scaler.enabled is None else Const(scaler.enabled)
    elif name == "scale":
        return scaled(machine, node, scaler, first or UNKNOWN)
    elif name == "step":
        _step(machine, node, scaler, first, arguments)
    elif scaler.enabled is not False:
        if name == "unscale_":
            machine.emit("unscale", node, scaler=scaler, optimizer=only(first or UNKNOWN, Optimizer))
        elif name == "update":
            machine.emit("update", node, scaler=scaler)
            scaler.updates += 1
    return UNKNOWN


def scaled(machine: Machine, node: ast.AST, scaler: Scaler, value: Value) -> Value:
    """`scaler.scale(value)`, of a tensor or of several."""
    if scaler.enabled is False:
        return value
    if isinstance(value, Items):
        return Items([scaled(machine, node, scaler, item) for item in value.items], value.open)
    if isinstance(value, Iterable):
        return Iterable(scaled(machine, node, scaler, value.element))
    tensor = value if isinstance(value, Tensor) else Tensor()
    machine.emit("scale", node, scaler=scaler, tensor=tensor)
    return replace(tensor, scaled=Scaled(scaler, scaler.updates), reading=None)


def _step(machine: Machine, node: ast.Call, scaler: Scaler, first: Value | None, arguments: Arguments) -> None:
    optimizer = only(first or UNKNOWN, Optimizer)
    kind = "opt_step" if scaler.enabled is False else "step"
    closure = arguments.get(1, "closure")
    machine.emit(kind, node, scaler=None if kind == "opt_step" else scaler, optimizer=optimizer, detail=closure)


def models_in(values: list[Value]) -> frozenset[Object]:
    """The models whose parameters are among these values."""
    found: frozenset[Object] = frozenset()
    for argument in values:
        for value in alternatives(argument):
            if isinstance(value, Parameters | Tensor):
                found |= value.models
            elif isinstance(value, Items):
                found |= models_in(value.items)
            elif isinstance(value, Mapping):
                found |= models_in(list(value.items.values()))
            elif isinstance(value, Iterable):
                found |= models_in([value.element])
            elif isinstance(value, Object) and value.is_module:
                found |= {value}
    return found


def _framework(machine: Machine, node: ast.Call, scaler: Scaler, name: str, arguments: Arguments) -> Value:
    """Accelerate's and Fabric's object in fp16: it scales, unscales and steps by itself."""
    if name in {"prepare", "setup", "setup_optimizers", "setup_module"}:
        return _prepared(scaler, arguments)
    if name == "backward":
        loss = scaled(machine, node, scaler, arguments.get(0, "loss") or UNKNOWN)
        machine.emit("backward", node, tensor=loss if isinstance(loss, Tensor) else None)
    elif name in {"clip_grad_norm_", "clip_grad_value_", "clip_gradients", "unscale_gradients"}:
        machine.emit("unscale", node, scaler=scaler)
    elif name in {"save_state", "save", "get_state_dict"}:
        machine.emit("scaler_state", node, scaler=scaler)
    elif name == "autocast":
        return Autocast(node, "float16", scaler.enabled, frozenset({"cuda"}))
    elif name == "unwrap_model":
        return arguments.get(0) or UNKNOWN
    elif name == "get_scale":
        return ScaleValue(scaler, scaler.updates)
    return UNKNOWN


def _prepared(scaler: Scaler, arguments: Arguments) -> Value:
    for value in arguments.positional:
        optimizer = only(value, Optimizer)
        if optimizer is not None:
            optimizer.scaled_by = scaler
    return arguments.positional[0] if len(arguments.positional) == 1 else Items(list(arguments.positional))
