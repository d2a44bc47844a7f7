"""Arithmetic and comparison: constants fold, tensors keep dtype, loss scale and what makes a half dangerous."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amp_core.lint.alternatives import alternatives
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.tensors import is_huge, is_lost, operation, promote
from amp_core.lint.values import HALVES, UNKNOWN, Const, DType, OneOf, Scaled, ScaleValue, Tensor, Test, Unknown, Value

FOLDS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.In: lambda item, holder: item in holder,
    ast.NotIn: lambda item, holder: item not in holder,
}
MAX_FOLDED = 1e40


def combine(machine: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
    """The value of `left op right`."""
    if isinstance(left, Const) and isinstance(right, Const):
        return fold(op, left.value, right.value)
    if isinstance(left, ScaleValue) or isinstance(right, ScaleValue):
        return _with_scale(machine, node, op, left, right)
    if isinstance(op, ast.Mod):
        return Test("periodic") if not isinstance(left, Const) else UNKNOWN
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        return _tensors(machine, node, op, left, right)
    if isinstance(left, Const) or isinstance(right, Const):
        in_constructor = bool(machine.functions) and machine.functions[-1] == "__init__"
        return Tensor(is_number=True) if in_constructor else UNKNOWN
    return UNKNOWN


def fold(op: ast.operator, left: Any, right: Any) -> Value:
    """Arithmetic on literals; anything large, failing or not numeric is unknown."""
    function = FOLDS.get(type(op))
    if function is None or not isinstance(left, int | float) or not isinstance(right, int | float):
        return UNKNOWN
    if abs(left) > MAX_FOLDED or abs(right) > MAX_FOLDED or (isinstance(op, ast.Pow) and abs(right) > 64):
        return UNKNOWN
    try:
        value = function(left, right)
    except (ArithmeticError, ValueError):
        return UNKNOWN
    return Const(value) if isinstance(value, int | float) else UNKNOWN


def _with_scale(machine: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
    """A loss scale in arithmetic: dividing by it removes it, if no update came between."""
    if isinstance(left, ScaleValue):
        if isinstance(right, Tensor) and isinstance(op, ast.Mult):
            return _scaled_by(machine, node, right, left)
        return left if isinstance(op, ast.Mult | ast.Add) else UNKNOWN
    assert isinstance(right, ScaleValue)
    if isinstance(left, Tensor):
        divides = isinstance(op, ast.Div) and not right.inverse
        if divides or (isinstance(op, ast.Mult) and right.inverse):
            return _unscaled_by(left, right)
        return _scaled_by(machine, node, left, right) if isinstance(op, ast.Mult) else left
    if isinstance(op, ast.Div):
        return ScaleValue(right.scaler, right.version, not right.inverse)
    return right if isinstance(op, ast.Mult) else UNKNOWN


def _scaled_by(machine: Machine, node: ast.AST, tensor: Tensor, scale: ScaleValue) -> Value:
    if scale.inverse:
        return _unscaled_by(tensor, scale)
    machine.emit("scale", node, scaler=scale.scaler, tensor=tensor)
    return replace(tensor, scaled=Scaled(scale.scaler, scale.version))


def _unscaled_by(tensor: Tensor, scale: ScaleValue) -> Value:
    scaled = tensor.scaled
    if scaled is None or (scaled.scaler is scale.scaler and scaled.version == scale.version):
        if tensor.reading is not None:
            tensor.reading.kind = "corrected_read"
        return replace(tensor.plain(), scaled=None)
    if tensor.reading is not None:
        tensor.reading.detail = "stale"
    return tensor


def _tensors(machine: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Tensor:
    if isinstance(op, ast.MatMult):
        return operation(machine, node, "matmul", [left, right])
    if isinstance(op, ast.Pow):
        return operation(machine, node, "square" if _is_two(right) and not machine.autocast else "pow", [left, right])
    if isinstance(op, ast.Div):
        _denominator(machine, node, right)
    parts = [v for v in (left, right) if isinstance(v, Tensor)]
    found = operation(machine, node, "", [left, right])
    found = replace(found, dtype=_dtype(left, right), is_number=all(p.is_number for p in parts))
    if found.is_number:
        found = replace(found, reading=next((p.reading for p in parts if p.reading is not None), None))
    found = _loss_arithmetic(found, op, left, right)
    return _range_of(machine, node, op, left, right, found)


def _dtype(left: Value, right: Value) -> str | None:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return promote(left, right)
    tensor, other = (left, right) if isinstance(left, Tensor) else (right, left)
    assert isinstance(tensor, Tensor)
    if isinstance(other, Const) and isinstance(other.value, int | float):
        is_integral = tensor.dtype is not None and not tensor.dtype.startswith(("float", "bfloat"))
        return "float32" if is_integral and isinstance(other.value, float) else tensor.dtype
    return None


def _loss_arithmetic(found: Tensor, op: ast.operator, left: Value, right: Value) -> Tensor:
    """A loss divided for accumulation, or multiplied by a loss scale of the script's own."""
    if isinstance(op, ast.Div) and isinstance(left, Tensor):
        by_one = isinstance(right, Const) and right.value in (1, 1.0)
        if not by_one and not isinstance(right, Tensor):
            return replace(found, divided=True)
    if isinstance(op, ast.Mult):
        factor = right if isinstance(left, Tensor) else left
        big = isinstance(factor, Const) and isinstance(factor.value, int | float) and factor.value >= 8
        if big or isinstance(factor, Unknown):
            return replace(found, multiplied=True)
        if isinstance(factor, Const) and isinstance(factor.value, float) and 0 < factor.value < 1:
            return replace(found, divided=True)
    return found


def _range_of(machine: Machine, node: ast.AST, op: ast.operator, left: Value, right: Value, found: Tensor) -> Tensor:
    """What of the result is dangerous in half precision."""
    tensor, other = (left, right) if isinstance(left, Tensor) else (right, left)
    assert isinstance(tensor, Tensor)
    if isinstance(other, Const):
        if isinstance(op, ast.Add | ast.Sub) and tensor.dtype == "float16" and is_lost(other.value):
            return replace(found, lost_eps=node, mean_square=tensor.mean_square)
        if isinstance(op, ast.Add | ast.Sub | ast.Mult) and is_huge(other.value):
            if tensor.dtype == "float16":
                machine.emit("out_of_range", node, tensor=tensor, detail=other.value)
            return replace(found, huge=node)
        if isinstance(op, ast.Sub) and isinstance(left, Const) and left.value == 1 and tensor.near_one:
            return replace(found, complement=node if tensor.dtype in HALVES else None)
        if isinstance(op, ast.Add):
            return replace(found, complement=None, mean_square=tensor.mean_square)
    if isinstance(op, ast.Mult) and isinstance(node, ast.BinOp) and tensor.dtype == "float16" and _same_text(node):
        return replace(found, square=node)
    if isinstance(op, ast.Add) and isinstance(left, Tensor) and isinstance(right, Tensor):
        return replace(found, huge=left.huge or right.huge)
    return found


def _denominator(machine: Machine, node: ast.AST, value: Value) -> None:
    if isinstance(value, Tensor):
        for kind, culprit in (
            ("lost_eps", value.lost_eps),
            ("complement", value.complement),
            ("norm", value.mean_square),
        ):
            if culprit is not None and not (kind == "norm" and value.lost_eps is not None):
                machine.emit(kind, culprit, tensor=value, detail=node)


def _same_text(node: ast.BinOp) -> bool:
    simple = ast.Name | ast.Attribute | ast.BinOp
    return isinstance(node.left, simple) and ast.dump(node.left) == ast.dump(node.right)


def _is_two(value: Value) -> bool:
    return isinstance(value, Const) and value.value == 2


def compare(ops: list[ast.cmpop], left: Value, rights: list[Value]) -> Value:
    """A comparison: known for constants and dtypes, else a question of some kind."""
    if len(rights) == 1:
        answers = {_compare_one(ops[0], a, b) for a in alternatives(left) for b in alternatives(rights[0])}
        if len(answers) == 1 and None not in answers:
            return Const(answers.pop())
        if len(answers) > 1 and None not in answers:
            return OneOf((Const(value=True), Const(value=False)))
    for value in (left, *rights):
        for part in alternatives(value):
            if isinstance(part, Test):
                return part
            if isinstance(part, ScaleValue):
                return Test("scale")
    return UNKNOWN


def _compare_one(op: ast.cmpop, left: Value, right: Value) -> bool | None:
    function = COMPARISONS[type(op)]
    if isinstance(left, DType) and isinstance(right, DType) and isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return function(left.name, right.name)
    if isinstance(left, Const) and isinstance(right, Const):
        try:
            return bool(function(left.value, right.value))
        except (TypeError, ValueError):
            return None
    identity = isinstance(op, ast.Is | ast.IsNot) and isinstance(right, Const) and right.value is None
    if identity and not isinstance(left, Unknown | Test | Const | Tensor | OneOf):
        return isinstance(op, ast.IsNot)
    return None
