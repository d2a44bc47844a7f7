"""Calls of models: modules of torch by kind, models of this module by running their `forward`."""

from __future__ import annotations

import ast
from dataclasses import replace

from amp_core.lint.interpreter.calls import Arguments, run_function, unknown_result
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.oplists import FLOAT32_MODULES, LOW_MODULES, SAME_MODULES
from amp_core.lint.interpreter.tensors import operation
from amp_core.lint.values import UNKNOWN, Const, Function, Items, Object, Optimizer, Scaler, Tensor, Value


def call_model(
    machine: Machine, node: ast.Call, model: Object, arguments: Arguments, *, is_part: bool = False
) -> Value:
    """The output of a model, or of any instance with `__call__`; `is_part` when another model calls it."""
    if not model.is_module:
        method = model.cls.method("__call__") if model.cls is not None else None
        if method is None:
            return unknown_result(machine, arguments, node)
        return run_function(
            machine, Function(method.node, method.scope, model), arguments.positional, arguments.keywords
        )
    first = arguments.positional[0] if arguments.positional else None
    given = first if isinstance(first, Tensor) else None
    machine.emit("forward", node, model=model, tensor=given, detail="part" if is_part else None)
    forward = model.cls.method("forward") if model.cls is not None else None
    if forward is not None:
        bound = Function(forward.node, forward.scope, model)
        return _marked(machine, run_function(machine, bound, arguments.positional, arguments.keywords), model)
    if model.children:
        value: Value = arguments.positional[0] if arguments.positional else UNKNOWN
        for child in model.children:
            value = _call_child(machine, node, child, value)
        return _marked(machine, value, model)
    return _builtin(machine, node, model, arguments)


def _call_child(machine: Machine, node: ast.Call, child: Value, value: Value) -> Value:
    if isinstance(child, Object):
        return call_model(machine, node, child, Arguments([value]), is_part=True)
    return Tensor(regions=frozenset({machine.autocast} if machine.autocast else set()))


def _marked(machine: Machine, value: Value, model: Object) -> Value:
    """The output, with the model among those that made it."""
    if isinstance(value, Items):
        return Items([_marked(machine, item, model) for item in value.items], value.open)
    if isinstance(value, Tensor):
        return replace(value, models=value.models | {model})
    if isinstance(value, Const | Scaler | Optimizer):
        return value
    region = machine.autocast
    return Tensor(models=frozenset({model}), regions=frozenset({region} if region else set()))


def _builtin(machine: Machine, node: ast.Call, model: Object, arguments: Arguments) -> Value:
    """A module of torch, or a model of which only the use is known."""
    kind = model.kind.rsplit(".", 1)[-1]
    if not model.kind.startswith("torch.nn."):
        found = operation(machine, node, "module", arguments.all, model=model)
        return replace(found, dtype=None)
    if kind == "BCELoss":
        machine.emit("bce", node)
        return operation(machine, node, "mse_loss", arguments.positional)
    if kind.endswith("Loss"):
        return operation(machine, node, "cross_entropy", arguments.positional)
    if kind in LOW_MODULES:
        return operation(machine, node, "linear", arguments.positional[:1], weights=model.weights, model=model)
    if kind in FLOAT32_MODULES:
        return operation(machine, node, "layer_norm", arguments.positional[:1], model=model)
    if kind == "Sigmoid":
        return operation(machine, node, "sigmoid", arguments.positional[:1], model=model)
    if kind in {"Embedding", "EmbeddingBag"}:
        return replace(operation(machine, node, "", arguments.positional[:1], model=model), dtype=model.weights)
    same = kind in SAME_MODULES
    found = operation(machine, node, "" if same else "module", arguments.positional[:1], model=model)
    return found if same else replace(found, dtype=None)
