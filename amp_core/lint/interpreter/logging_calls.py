"""Values handed to logging: scaled losses, and the loss scale read for nothing else."""

from __future__ import annotations

import ast

from amp_core.lint.interpreter.calls import Arguments
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import Items, Iterable, Mapping, ScaleValue, Tensor, Value

LOG_METHODS = {"log", "log_dict", "add_scalar", "add_scalars", "log_metric", "log_metrics", "set_postfix", "track"}
STORE_METHODS = {"append"}


def note_logged(machine: Machine, node: ast.Call, name: str, arguments: Arguments) -> None:
    """Record what a call of a logging method is given."""
    if name not in LOG_METHODS and name not in STORE_METHODS:
        return
    for value in _flat(arguments.all):
        if isinstance(value, ScaleValue):
            machine.emit("scale_logged", node, scaler=value.scaler)
        elif name in LOG_METHODS:
            shown(machine, node, value)


def shown(machine: Machine, node: ast.AST, value: Value) -> None:
    """A tensor that still carries its loss scale is printed or logged."""
    if isinstance(value, Tensor) and value.scaled is not None and value.reading is None and not value.from_grad:
        machine.emit("scaled_read", node, tensor=value)


def _flat(values: list[Value]) -> list[Value]:
    found: list[Value] = []
    for value in values:
        if isinstance(value, Mapping):
            found.extend(value.items.values())
        elif isinstance(value, Items):
            found.extend(value.items)
        elif not isinstance(value, Iterable):
            found.append(value)
    return found
