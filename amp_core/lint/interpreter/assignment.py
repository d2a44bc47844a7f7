"""Assignment to names, attributes, items and patterns; what a loop may change is forgotten before its body runs."""

from __future__ import annotations

import ast

from amp_core.lint.alternatives import join, only
from amp_core.lint.interpreter import flags, gradients
from amp_core.lint.interpreter.ducks import path_of
from amp_core.lint.interpreter.expressions import evaluate
from amp_core.lint.interpreter.iteration import element_of
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.module_methods import convert
from amp_core.lint.interpreter.operators import combine
from amp_core.lint.syntax import nodes_of
from amp_core.lint.values import HALVES, UNKNOWN, Const, External, Items, Mapping, Object, Tensor, Unknown, Value


def assign(machine: Machine, target: ast.expr, value: Value) -> None:
    """Bind `value` to any kind of target."""
    if isinstance(target, ast.Name):
        machine.bind(target.id, value)
    elif isinstance(target, ast.Tuple | ast.List):
        _assign_pattern(machine, target.elts, value)
    elif isinstance(target, ast.Starred):
        assign(machine, target.value, UNKNOWN)
    elif isinstance(target, ast.Attribute):
        _assign_attribute(machine, target, value)
    elif isinstance(target, ast.Subscript):
        _assign_item(machine, target, value)


def _assign_pattern(machine: Machine, targets: list[ast.expr], value: Value) -> None:
    exact = isinstance(value, Items) and not value.open and len(value.items) == len(targets)
    starred = any(isinstance(target, ast.Starred) for target in targets)
    for number, target in enumerate(targets):
        if exact and not starred and isinstance(value, Items):
            assign(machine, target, value.items[number])
        else:
            assign(machine, target, element_of(value))


def _assign_attribute(machine: Machine, target: ast.Attribute, value: Value) -> None:
    owner = evaluate(machine, target.value)
    if target.attr == "grad":
        gradients.replaced(machine, target, owner, value)
    if isinstance(owner, External):
        flags.set_flag(machine, target, owner.name, value)
    if target.attr == "data":
        _replace_weights(machine, target, owner, value)
    holder = only(owner, Object)
    if isinstance(value, Unknown):
        value = machine.ducks.value_for(path_of(target), machine.loops) or value
    if holder is None:
        machine.by_text[ast.unparse(target)] = value
        return
    known = holder.attributes.get(target.attr)
    in_branch = bool(machine.conditions) and known is not None
    holder.attributes[target.attr] = join(known, value) if in_branch and known is not None else value


def _replace_weights(machine: Machine, target: ast.Attribute, owner: Value, value: Value) -> None:
    """`p.data = p.data.half()` for the parameters of a model converts it."""
    model = owner.parameter_of if isinstance(owner, Tensor) else None
    if model is not None and isinstance(value, Tensor) and value.dtype is not None and value.dtype in HALVES:
        convert(machine, target, model, value.dtype)


def _assign_item(machine: Machine, target: ast.Subscript, value: Value) -> None:
    holder = evaluate(machine, target.value)
    key = evaluate(machine, target.slice)
    if isinstance(holder, Mapping):
        if isinstance(key, Const):
            holder.items[key.value] = value
        else:
            holder.open = True
    elif isinstance(holder, Items):
        holder.open = True
    elif isinstance(holder, Tensor):
        gradients.item_set(machine, target, holder, value)


def assign_augmented(machine: Machine, node: ast.AugAssign) -> None:
    """`x += y`: a sum kept in half precision, an edit of gradients, or a number."""
    value = evaluate(machine, node.value)
    before = evaluate(machine, node.target)
    if isinstance(node.op, ast.Add):
        machine.emit("accumulate", node, detail=(before, value))
    if isinstance(before, Tensor) and before.gradient_of is not None:
        gradients.edited(machine, node, before, type(node.op).__name__.lower(), [value])
    if isinstance(before, Const):
        assign(machine, node.target, value if isinstance(value, Tensor) else UNKNOWN)
        return
    assign(machine, node.target, combine(machine, node, node.op, before, value))


def _assigned_in(machine: Machine, node: ast.AST) -> frozenset[str]:
    """Names that a loop assigns, found once per loop."""
    if node in machine.assigned:
        return machine.assigned[node]
    names = set()
    for child in nodes_of(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
    machine.assigned[node] = frozenset(names)
    return machine.assigned[node]


def forget_changing(machine: Machine, loop: ast.AST) -> None:
    """Constants that the loop assigns are not constant in it."""
    for name in _assigned_in(machine, loop):
        scope = machine.scope.find(name)
        known = scope.names[name] if scope is not None else None
        if scope is not None and isinstance(known, Const):
            is_number = isinstance(known.value, int | float) and not isinstance(known.value, bool)
            scope.names[name] = Tensor(is_number=True) if is_number else UNKNOWN
