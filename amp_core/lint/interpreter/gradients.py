"""Writes to gradients: `p.grad = …`, `p.grad += …`, `p.grad.add_(…)`, `p.grad[…] = …`."""

from __future__ import annotations

import ast

from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.tensors import is_huge
from amp_core.lint.values import Const, Object, ScaleValue, Tensor, Value

ANY_MODEL = Object("any", is_module=True)
LINEAR = {"mult", "div", "mul_", "div_", "zero_"}


def gradient_of(value: Value) -> Tensor:
    """`value.grad`."""
    owner = value.parameter_of if isinstance(value, Tensor) else None
    dtype = value.dtype if isinstance(value, Tensor) else None
    return Tensor(dtype=dtype, gradient_of=owner or ANY_MODEL)


def edited(machine: Machine, node: ast.AST, gradient: Tensor, how: str, operands: list[Value]) -> None:
    """An in-place change of a gradient. Multiplying by a constant commutes with unscaling; anything else does not."""
    by_scale = any(isinstance(value, ScaleValue) for value in operands)
    if by_scale:
        machine.emit("manual_unscale", node, model=gradient.gradient_of)
    elif how not in LINEAR:
        machine.emit("grad_edit", node, model=gradient.gradient_of, detail=how)


def replaced(machine: Machine, target: ast.Attribute, owner: Value, value: Value) -> None:
    """`p.grad = value`: an edit if the value is made from a gradient and something else."""
    if not isinstance(value, Tensor) or value.gradient_of is None:
        return
    source = owner.parameter_of if isinstance(owner, Tensor) else None
    machine.emit("grad_replaced", target, model=source or ANY_MODEL)


def item_set(machine: Machine, target: ast.Subscript, holder: Tensor, value: Value) -> None:
    """`scores[mask] = c`: a constant that does not fit the tensor."""
    if holder.dtype == "float16" and isinstance(value, Const) and is_huge(value.value):
        machine.emit("out_of_range", target, tensor=holder, detail=value.value)
