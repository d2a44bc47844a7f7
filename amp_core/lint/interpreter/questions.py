"""What a branch asks: its text in a normal form, whether the answer is known, and its kind."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from amp_core.lint.alternatives import alternatives, truth
from amp_core.lint.interpreter.ducks import path_of
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.syntax import nodes_of
from amp_core.lint.values import Test, Value

FINITE_CHECKS = {"isfinite", "isnan", "isinf"}
PERIODIC_NAMES = ("accum", "sync_grad", "is_update", "do_step", "should_step", "last_micro", "is_boundary")


@dataclass(frozen=True, slots=True)
class Question:
    """`positive` is False when the text is the negation of what is written."""

    key: str
    positive: bool
    kind: str
    decided: bool | None


def question(machine: Machine, test: ast.expr, value: Value) -> Question:
    """The question of a branch; `if not x` and `if x is None` ask the same as `if x`, with the answer turned round."""
    decided = True if _is_main(test) else truth(value)
    positive, core = True, test
    while True:
        if isinstance(core, ast.UnaryOp) and isinstance(core.op, ast.Not):
            positive, core = not positive, core.operand
        elif isinstance(core, ast.Compare) and len(core.ops) == 1 and _is_none(core.comparators[0]):
            if isinstance(core.ops[0], ast.Is | ast.Eq):
                positive = not positive
            core = core.left
        else:
            break
    return Question(ast.unparse(core), positive, kind_of(machine, test), decided)


def kind_of(machine: Machine, test: ast.expr) -> str:
    """periodic (every n-th micro-batch), finite (a check for NaN), scale (a look at the loss scale) or empty."""
    kind = ""
    for node in nodes_of(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return "periodic"
        if isinstance(node, ast.Call) and path_of(node.func).rsplit(".", 1)[-1] in FINITE_CHECKS:
            return "finite"
        if isinstance(node, ast.Name | ast.Attribute):
            kind = kind or _kind_of_name(machine, node)
    return kind


def _kind_of_name(machine: Machine, node: ast.Name | ast.Attribute) -> str:
    path = path_of(node).lower()
    if isinstance(node, ast.Name):
        for value in alternatives(machine.lookup(node.id)):
            if isinstance(value, Test):
                return value.kind
    name = path.rsplit(".", 1)[-1]
    if (
        name in FINITE_CHECKS
        or "finite" in name
        or "found_inf" in name
        or name.startswith(("isnan", "has_nan", "has_inf"))
    ):
        return "finite"
    if any(part in name for part in PERIODIC_NAMES):
        return "periodic"
    if "scale" in name or "skip" in name:
        return "scale"
    return ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
    )
