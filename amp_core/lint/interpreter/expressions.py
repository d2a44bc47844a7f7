"""Expressions: every node to an abstract value."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amp_core.lint.alternatives import join, truth
from amp_core.lint.events import Condition
from amp_core.lint.interpreter.iteration import element_of
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.interpreter.operators import combine, compare
from amp_core.lint.values import (
    UNKNOWN,
    Const,
    External,
    Function,
    Items,
    Iterable,
    Mapping,
    Object,
    Tensor,
    Test,
    Value,
)

BUILTINS = frozenset(dir(builtins))


def evaluate(machine: Machine, node: ast.expr) -> Value:
    """The abstract value of an expression; what it does is recorded on the way."""
    handler = HANDLERS.get(type(node))
    return UNKNOWN if handler is None else handler(machine, node)


def _constant(_: Machine, node: ast.Constant) -> Value:
    return Const(node.value)


def _name(machine: Machine, node: ast.Name) -> Value:
    scope = machine.scope.find(node.id)
    if scope is not None:
        return scope.names[node.id]
    if node.id in BUILTINS:
        return External(f"builtins.{node.id}")
    return machine.remembered(node.id)


def _attribute(machine: Machine, node: ast.Attribute) -> Value:
    from amp_core.lint.interpreter.attributes import attribute

    return attribute(machine, node, evaluate(machine, node.value))


def _call(machine: Machine, node: ast.Call) -> Value:
    from amp_core.lint.interpreter.calls import call

    return call(machine, node)


def _subscript(machine: Machine, node: ast.Subscript) -> Value:
    holder = evaluate(machine, node.value)
    key = evaluate(machine, node.slice)
    if isinstance(holder, Mapping):
        if isinstance(key, Const):
            return holder.items.get(key.value, holder.default)
        return _any_of(list(holder.items.values())) if not holder.open else holder.default
    if isinstance(holder, Tensor):
        return holder if holder.reading is not None else replace(holder.plain(), positions=holder.positions)
    children = holder.items if isinstance(holder, Items) else _children(holder)
    if (
        children
        and isinstance(key, Const)
        and isinstance(key.value, int)
        and -len(children) <= key.value < len(children)
    ):
        return children[key.value]
    return element_of(holder) if isinstance(holder, Iterable | Items) else UNKNOWN


def _children(holder: Value) -> list[Value]:
    return list(holder.children) if isinstance(holder, Object) else []


def _any_of(values: list[Value]) -> Value:
    if not values:
        return UNKNOWN
    found = values[0]
    for value in values[1:]:
        found = join(found, value)
    return found


def _binary(machine: Machine, node: ast.BinOp) -> Value:
    left, right = evaluate(machine, node.left), evaluate(machine, node.right)
    return combine(machine, node, node.op, left, right)


def _unary(machine: Machine, node: ast.UnaryOp) -> Value:
    value = evaluate(machine, node.operand)
    if isinstance(node.op, ast.Not):
        known = truth(value)
        return (value if isinstance(value, Test) else UNKNOWN) if known is None else Const(not known)
    if isinstance(value, Const) and isinstance(node.op, ast.USub) and isinstance(value.value, int | float):
        return Const(-value.value)
    return value


def _boolean(machine: Machine, node: ast.BoolOp) -> Value:
    values = [evaluate(machine, part) for part in node.values]
    known = [truth(value) for value in values]
    ending = isinstance(node.op, ast.Or)
    if ending in known[:-1] or all(answer is not None for answer in known):
        for value, answer in zip(values, known, strict=True):
            if answer is None:
                break
            if answer is ending:
                return value
        else:
            return values[-1]
    for value in values:
        if isinstance(value, Test):
            return value
    if not ending and False in known:
        return Const(value=False)
    return _any_of(values) if ending else UNKNOWN


def _compare(machine: Machine, node: ast.Compare) -> Value:
    left = evaluate(machine, node.left)
    rights = [evaluate(machine, part) for part in node.comparators]
    return compare(node.ops, left, rights)


def _conditional(machine: Machine, node: ast.IfExp) -> Value:
    from amp_core.lint.interpreter.questions import question

    asked = question(machine, node.test, evaluate(machine, node.test))
    if asked.decided is not None:
        return evaluate(machine, node.body if asked.decided else node.orelse)
    with machine.inside(conditions=(*machine.conditions, Condition(asked.key, asked.positive, asked.kind))):
        first = evaluate(machine, node.body)
    with machine.inside(conditions=(*machine.conditions, Condition(asked.key, not asked.positive, asked.kind))):
        second = evaluate(machine, node.orelse)
    return join(first, second)


def _sequence(machine: Machine, node: ast.Tuple | ast.List | ast.Set) -> Value:
    items: list[Value] = []
    is_open = False
    for element in node.elts:
        if isinstance(element, ast.Starred):
            inner = evaluate(machine, element.value)
            if isinstance(inner, Items) and not inner.open:
                items.extend(inner.items)
            else:
                is_open = True
                items.append(element_of(inner))
        else:
            items.append(evaluate(machine, element))
    return Items(items, is_open)


def _dict(machine: Machine, node: ast.Dict) -> Value:
    found = Mapping({})
    for key, value_node in zip(node.keys, node.values, strict=True):
        value = evaluate(machine, value_node)
        if key is None:
            if isinstance(value, Mapping):
                found.items.update(value.items)
                found.open |= value.open
            else:
                found.open = True
            continue
        name = evaluate(machine, key)
        if isinstance(name, Const):
            found.items[name.value] = value
        else:
            found.open = True
    return found


def _comprehension(machine: Machine, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    from amp_core.lint.interpreter.assignment import assign

    with machine.inside(loops=machine.new_loop()):
        for generator in node.generators:
            assign(machine, generator.target, element_of(evaluate(machine, generator.iter)))
            for test in generator.ifs:
                evaluate(machine, test)
        if isinstance(node, ast.DictComp):
            evaluate(machine, node.key)
            return Mapping({}, open=True, default=evaluate(machine, node.value))
        return Iterable(evaluate(machine, node.elt))


def _lambda(machine: Machine, node: ast.Lambda) -> Value:
    return Function(node, machine.scope)


def _formatted(machine: Machine, node: ast.JoinedStr) -> Value:
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            shown = evaluate(machine, part.value)
            if isinstance(shown, Tensor) and shown.scaled is not None and shown.reading is None:
                machine.emit("scaled_read", part.value, tensor=shown)
    return UNKNOWN


def _walrus(machine: Machine, node: ast.NamedExpr) -> Value:
    value = evaluate(machine, node.value)
    machine.bind(node.target.id, value)
    return machine.lookup(node.target.id)


def _yield(machine: Machine, node: ast.Yield) -> Value:
    frame = machine.frames[-1]
    frame.yielded.append(Const(None) if node.value is None else evaluate(machine, node.value))
    frame.regions = machine.regions
    return UNKNOWN


def _inner(machine: Machine, node: Any) -> Value:
    return evaluate(machine, node.value)


def _slice(machine: Machine, node: ast.Slice) -> Value:
    for part in (node.lower, node.upper, node.step):
        if part is not None:
            evaluate(machine, part)
    return UNKNOWN


HANDLERS: dict[type[ast.expr], Callable[[Machine, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Tuple: _sequence,
    ast.List: _sequence,
    ast.Set: _sequence,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Lambda: _lambda,
    ast.JoinedStr: _formatted,
    ast.NamedExpr: _walrus,
    ast.Yield: _yield,
    ast.YieldFrom: _inner,
    ast.Await: _inner,
    ast.Starred: _inner,
    ast.Slice: _slice,
}
