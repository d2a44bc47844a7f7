"""Global switches that matter to precision: TF32, anomaly detection."""

from __future__ import annotations

import ast

from amp_core.lint.alternatives import strings, truth
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import Value

TF32_FLAGS = {"torch.backends.cuda.matmul", "torch.backends.cudnn"}


def set_flag(machine: Machine, target: ast.Attribute, owner: str, value: Value) -> None:
    """`torch.backends.….allow_tf32 = value` and its newer spelling."""
    if not owner.startswith("torch.backends."):
        return
    names = strings(value) or frozenset()
    switched_on = target.attr == "allow_tf32" and owner in TF32_FLAGS and truth(value) is True
    if switched_on or (target.attr == "fp32_precision" and "tf32" in names and len(names) == 1):
        machine.emit("tf32", target)


def anomaly(machine: Machine, node: ast.AST, value: Value | None) -> None:
    """`set_detect_anomaly(value)` or `detect_anomaly()`."""
    if value is None or truth(value) is True:
        machine.emit("anomaly", node)


def matmul_precision(machine: Machine, node: ast.AST, value: Value | None) -> None:
    """`torch.set_float32_matmul_precision(value)`."""
    found = None if value is None else strings(value)
    if found and found <= {"high", "medium"}:
        machine.emit("tf32", node)
