"""Statements: branches, loops, with-blocks, definitions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from amp_core.lint.alternatives import join, truth
from amp_core.lint.events import Condition
from amp_core.lint.interpreter import classes, contexts
from amp_core.lint.interpreter.assignment import assign, assign_augmented, forget_changing
from amp_core.lint.interpreter.expressions import evaluate
from amp_core.lint.interpreter.imports import bind_import, bind_import_from
from amp_core.lint.interpreter.iteration import element_of, unrolled
from amp_core.lint.interpreter.machine import MAX_STATEMENTS, Machine
from amp_core.lint.interpreter.questions import Question, question
from amp_core.lint.values import Const, Function, Value

ENDINGS = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def run_block(machine: Machine, body: list[ast.stmt]) -> None:
    """Run statements in order; what follows an `if` that leaves is conditional on its not being taken."""
    for position, statement in enumerate(body):
        machine.statements += 1
        if machine.statements > MAX_STATEMENTS:
            return
        if isinstance(statement, ast.If):
            left = _left_on(statement, run_if(machine, statement))
            if left == "always":
                return
            if isinstance(left, Condition):
                with machine.inside(conditions=(*machine.conditions, left)):
                    run_block(machine, body[position + 1 :])
                return
            continue
        handler = HANDLERS.get(type(statement))
        if handler is not None:
            handler(machine, statement)
        if isinstance(statement, ENDINGS):
            return


def _left_on(node: ast.If, asked: Question) -> Condition | str | None:
    """The condition under which the code after an `if` still runs: None for no condition."""
    leaves, other_leaves = _ends(node.body), _ends(node.orelse)
    if not leaves and not other_leaves:
        return None
    if asked.decided is not None:
        return "always" if (leaves if asked.decided else other_leaves) else None
    if leaves and other_leaves:
        return "always"
    return Condition(asked.key, asked.positive is not leaves, asked.kind)


def _ends(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ENDINGS)


def run_if(machine: Machine, node: ast.If) -> Question:
    """Run both branches, or the one that is certain; names keep what is common to both."""
    asked = question(machine, node.test, evaluate(machine, node.test))
    if asked.decided is not None:
        run_block(machine, node.body if asked.decided else node.orelse)
        return asked
    scope = machine.scope
    before = dict(scope.names)
    with machine.inside(conditions=(*machine.conditions, Condition(asked.key, asked.positive, asked.kind))):
        run_block(machine, node.body)
    after_body = dict(scope.names)
    scope.names.clear()
    scope.names.update(before)
    with machine.inside(conditions=(*machine.conditions, Condition(asked.key, not asked.positive, asked.kind))):
        run_block(machine, node.orelse)
    if _ends(node.body):
        return asked
    if _ends(node.orelse):
        scope.names.clear()
        scope.names.update(after_body)
        return asked
    for name, value in after_body.items():
        other = scope.names.get(name)
        scope.names[name] = value if other is None else join(value, other)
    return asked


def run_for(machine: Machine, node: ast.For | ast.AsyncFor) -> None:
    iterable = evaluate(machine, node.iter)
    few = unrolled(iterable)
    if few is not None:
        for item in few:
            assign(machine, node.target, item)
            run_block(machine, node.body)
    else:
        forget_changing(machine, node)
        with machine.inside(loops=machine.new_loop()):
            assign(machine, node.target, element_of(iterable))
            run_block(machine, node.body)
    run_block(machine, node.orelse)


def run_while(machine: Machine, node: ast.While) -> None:
    forget_changing(machine, node)
    if truth(evaluate(machine, node.test)) is False:
        return
    with machine.inside(loops=machine.new_loop()):
        run_block(machine, node.body)
    run_block(machine, node.orelse)


def run_with(machine: Machine, node: ast.With | ast.AsyncWith) -> None:
    changes: dict[str, Any] = {"regions": machine.regions}
    for item in node.items:
        with machine.inside(**changes):
            value = evaluate(machine, item.context_expr)
        contexts.enter(machine, value, item.context_expr, changes)
        if item.optional_vars is not None:
            assign(machine, item.optional_vars, value)
    with machine.inside(**changes):
        run_block(machine, node.body)


def run_try(machine: Machine, node: ast.Try) -> None:
    run_block(machine, node.body)
    for number, handler in enumerate(node.handlers):
        key = f"except@{node.lineno}:{number}"
        with machine.inside(conditions=(*machine.conditions, Condition(key, answer=True))):
            run_block(machine, handler.body)
    run_block(machine, node.orelse)
    run_block(machine, node.finalbody)


def run_match(machine: Machine, node: ast.Match) -> None:
    evaluate(machine, node.subject)
    for number, case in enumerate(node.cases):
        others = tuple(Condition(f"match@{node.lineno}:{n}", n == number) for n in range(len(node.cases)))
        with machine.inside(conditions=(*machine.conditions, *others)):
            run_block(machine, case.body)


def run_function(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
        evaluate(machine, default)
    machine.bind(node.name, Function(node, machine.scope))


def run_class(machine: Machine, node: ast.ClassDef) -> None:
    machine.bind(node.name, classes.define(machine, node))


def run_assign(machine: Machine, node: ast.Assign) -> None:
    value = evaluate(machine, node.value)
    for target in node.targets:
        assign(machine, target, value)


def run_annotated(machine: Machine, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign(machine, node.target, evaluate(machine, node.value))


def run_return(machine: Machine, node: ast.Return) -> None:
    value: Value = Const(None) if node.value is None else evaluate(machine, node.value)
    machine.frames[-1].returned.append(value)


def run_delete(machine: Machine, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            machine.scope.names.pop(target.id, None)


def run_global(machine: Machine, node: ast.Global | ast.Nonlocal) -> None:
    if isinstance(node, ast.Global):
        machine.scope.globals.update(node.names)


def run_assert(machine: Machine, node: ast.Assert) -> None:
    evaluate(machine, node.test)


def run_raise(machine: Machine, node: ast.Raise) -> None:
    if node.exc is not None:
        evaluate(machine, node.exc)


def run_continue(machine: Machine, node: ast.Continue) -> None:
    machine.emit("continue", node)


def run_expression(machine: Machine, node: ast.Expr) -> None:
    evaluate(machine, node.value)


HANDLERS: dict[type[ast.stmt], Callable[[Machine, Any], None]] = {
    ast.For: run_for,
    ast.AsyncFor: run_for,
    ast.While: run_while,
    ast.With: run_with,
    ast.AsyncWith: run_with,
    ast.Try: run_try,
    ast.Match: run_match,
    ast.FunctionDef: run_function,
    ast.AsyncFunctionDef: run_function,
    ast.ClassDef: run_class,
    ast.Assign: run_assign,
    ast.AnnAssign: run_annotated,
    ast.AugAssign: assign_augmented,
    ast.Return: run_return,
    ast.Delete: run_delete,
    ast.Global: run_global,
    ast.Nonlocal: run_global,
    ast.Assert: run_assert,
    ast.Raise: run_raise,
    ast.Continue: run_continue,
    ast.Expr: run_expression,
    ast.Import: bind_import,
    ast.ImportFrom: bind_import_from,
}
if hasattr(ast, "TryStar"):
    HANDLERS[ast.TryStar] = run_try
