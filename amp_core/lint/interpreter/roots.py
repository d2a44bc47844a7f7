"""Where running starts: the module's body, then every method and function that nothing here calls."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

from amp_core.lint.events import Event, Trace
from amp_core.lint.interpreter import classes
from amp_core.lint.interpreter.calls import initialise, run_function
from amp_core.lint.interpreter.ducks import Ducks
from amp_core.lint.interpreter.machine import Frame, Machine
from amp_core.lint.interpreter.statements import run_block
from amp_core.lint.program import Program
from amp_core.lint.syntax import nodes_of
from amp_core.lint.values import HALVES, UNKNOWN, Autocast, Class, Const, Function, Object, Scope, Value

FORWARDS = {"forward", "training_step", "validation_step", "test_step", "predict_step", "shared_step"}


def interpret(tree: ast.Module) -> Program:
    """The events of a module, by entry point."""
    program = Program(tree)
    nodes = nodes_of(tree)
    machine = Machine(program, Ducks.of(nodes), _changing_attributes(nodes))
    scope = Scope({})
    machine.frames.append(Frame(scope))
    program.traces.append(machine.trace)
    run_block(machine, tree.body)
    for value in list(scope.names.values()):
        if isinstance(value, Function) and not machine.reached.get(value.node):
            _run_root(machine, value)
    models = [cls for cls in program.classes if classes.is_module(cls)]
    for cls in program.classes:
        if cls not in models and "torch.autograd.Function" not in cls.bases:
            _run_class(machine, cls)
    for cls in models:
        _run_class(machine, cls)
    return program


def _run_class(machine: Machine, cls: Class) -> None:
    """Call the methods that were not reached, those that others of the class call last."""
    methods = [v for v in cls.scope.names.values() if isinstance(v, Function) and not machine.reached.get(v.node)]
    methods = [m for m in methods if getattr(m.node, "name", "") != "__init__"]
    if not methods:
        return
    machine.trace = Trace(f"{cls.node.name}.__init__")
    made = classes.blank(machine, cls)
    init = cls.method("__init__")
    initialise(machine, made, _unknown_arguments(machine, init, made) if init is not None else [], {})
    machine.program.traces.append(machine.trace)
    constructed = list(machine.trace.events)
    called = {name for method in methods for name in _self_calls(method.node)}
    methods.sort(key=lambda method: getattr(method.node, "name", "") in called)
    for method in methods:
        if not machine.reached.get(method.node):
            _run_root(machine, Function(method.node, method.scope, made), constructed)


def _run_root(machine: Machine, function: Function, earlier: Sequence[Event] = ()) -> None:
    """Run a function with unknown arguments, after what the constructor of its object did."""
    name = getattr(function.node, "name", "lambda")
    owner = function.owner
    machine.trace = Trace(name, list(earlier))
    machine.program.traces.append(machine.trace)
    machine.by_text.clear()
    dtype = _assumed_dtype(machine) if isinstance(owner, Object) and owner.is_module and name in FORWARDS else None
    regions = machine.regions
    if dtype is not None:
        context = Autocast(function.node, dtype, enabled=True, devices=frozenset({"cuda"}))
        regions = (machine.enter(context, function.node, assumed=True),)
    static = any(getattr(d, "id", "") == "staticmethod" for d in getattr(function.node, "decorator_list", []))
    bound = Function(function.node, function.scope, None if static else owner)
    with machine.inside(regions=regions):
        run_function(machine, bound, _unknown_arguments(machine, bound, bound.owner), {})


def _unknown_arguments(machine: Machine, function: Function, owner: Value | None) -> list[Value]:
    from amp_core.lint.interpreter.expressions import evaluate

    spec = function.node.args
    names = [*spec.posonlyargs, *spec.args]
    defaults = dict(zip(reversed([a.arg for a in names]), reversed(spec.defaults), strict=False))
    values: list[Value] = []
    for argument in names[1 if owner is not None else 0 :]:
        default = evaluate(machine, defaults[argument.arg]) if argument.arg in defaults else UNKNOWN
        is_number = isinstance(default, Const) and isinstance(default.value, float)
        values.append(default if is_number else UNKNOWN)
    return values


def _assumed_dtype(machine: Machine) -> str | None:
    """The 16-bit type that this module's autocast regions agree on: its models run under it."""
    asked = {
        r.dtype for r in machine.program.regions if r.enabled is not False and not r.assumed
    } | machine.program.ambient
    halves = asked & HALVES
    return halves.pop() if len(halves) == 1 and None not in asked else None


def _self_calls(node: ast.AST) -> set[str]:
    found = set()
    for child in nodes_of(node):
        if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name) and child.value.id == "self":
            found.add(child.attr)
    return found


def _changing_attributes(nodes: list[ast.AST]) -> frozenset[str]:
    """Attributes that are assigned outside `__init__`, or counted up: their first constant does not stay."""
    stored = Counter(_stored(nodes))
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            stored.subtract(_stored(nodes_of(node)))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
            stored[node.target.attr] += 1
    return frozenset(name for name, count in stored.items() if count > 0)


def _stored(nodes: list[ast.AST]) -> list[str]:
    return [n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
