"""Calls: functions of the module are run in place, everything else goes to the tables of what is known."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from amp_core.lint.alternatives import alternatives, join
from amp_core.lint.interpreter import classes, contexts
from amp_core.lint.interpreter.expressions import evaluate
from amp_core.lint.interpreter.imports import note_deprecated
from amp_core.lint.interpreter.iteration import element_of
from amp_core.lint.interpreter.machine import MAX_DEPTH, MAX_INLINED, Frame, Machine
from amp_core.lint.values import (
    UNKNOWN,
    Bound,
    Class,
    Const,
    External,
    Function,
    Items,
    Iterable,
    Mapping,
    Object,
    OneOf,
    Partial,
    Scaler,
    Scope,
    Tensor,
    Unknown,
    Value,
)


@dataclass(slots=True)
class Arguments:
    """Arguments of one call; `get` finds one by position or keyword."""

    positional: list[Value]
    keywords: dict[str, Value] = field(default_factory=dict)
    open: bool = False

    def get(self, position: int, *names: str) -> Value | None:
        for name in names:
            if name in self.keywords:
                return self.keywords[name]
        return self.positional[position] if 0 <= position < len(self.positional) else None

    @property
    def all(self) -> list[Value]:
        return [*self.positional, *self.keywords.values()]


def arguments_of(machine: Machine, node: ast.Call) -> Arguments:
    found = Arguments([])
    for argument in node.args:
        value = evaluate(machine, argument)
        if not isinstance(argument, ast.Starred):
            found.positional.append(value)
        elif isinstance(value, Items) and not value.open:
            found.positional.extend(value.items)
        else:
            found.open = True
            found.positional.append(element_of(value))
    for keyword in node.keywords:
        value = evaluate(machine, keyword.value)
        if keyword.arg is not None:
            found.keywords[keyword.arg] = value
        elif isinstance(value, Mapping):
            found.keywords.update({k: v for k, v in value.items.items() if isinstance(k, str)})
            found.open |= value.open
        else:
            found.open = True
    return found


def call(machine: Machine, node: ast.Call) -> Value:
    """The value of a call."""
    from amp_core.lint.interpreter.methods import call_method

    function = node.func
    if isinstance(function, ast.Attribute):
        receiver = evaluate(machine, function.value)
        if not isinstance(receiver, External | Class):
            return call_method(machine, node, receiver, function.attr, arguments_of(machine, node))
        from amp_core.lint.interpreter.attributes import attribute

        callee = attribute(machine, function, receiver)
        note_deprecated(machine, node, callee)
    else:
        callee = evaluate(machine, function)
    return call_value(machine, node, callee, arguments_of(machine, node))


def call_value(machine: Machine, node: ast.Call, callee: Value, arguments: Arguments) -> Value:
    """Call any value."""
    from amp_core.lint.interpreter.external_calls import call_external
    from amp_core.lint.interpreter.methods import call_method
    from amp_core.lint.interpreter.models import call_model

    if isinstance(callee, Function):
        return run_function(machine, callee, arguments.positional, arguments.keywords)
    if isinstance(callee, Class):
        return instantiate(machine, callee, arguments)
    if isinstance(callee, External):
        return call_external(machine, node, callee.name, arguments)
    if isinstance(callee, Object):
        return call_model(machine, node, callee, arguments)
    if isinstance(callee, Partial):
        merged = Arguments([*callee.positional, *arguments.positional], {**callee.keywords, **arguments.keywords})
        return call_value(machine, node, callee.callee, merged)
    if isinstance(callee, Bound):
        return call_method(machine, node, callee.receiver, callee.name, arguments)
    if isinstance(callee, OneOf):
        options = [v for v in callee.alternatives if not isinstance(v, Const | Unknown)]
        found = [call_value(machine, node, option, arguments) for option in options]
        return _joined(found) if found else UNKNOWN
    return unknown_result(machine, arguments, node)


def unknown_result(machine: Machine, arguments: Arguments, node: ast.AST | None = None) -> Value:
    """The result of code that is not here: perhaps a tensor made of the arguments; scalers handed to it escape."""
    tensors: list[Tensor] = []
    models: frozenset[Object] = frozenset()
    for argument in arguments.all:
        for value in alternatives(argument):
            if isinstance(value, Scaler) and node is not None:
                machine.emit("escape", node, scaler=value)
            elif isinstance(value, Tensor):
                tensors.append(value)
            elif isinstance(value, Object) and value.is_module:
                models |= {value}
    region = machine.autocast
    if not tensors and region is None:
        return UNKNOWN
    return Tensor(
        models=models.union(*(t.models for t in tensors)),
        regions=frozenset({region} if region else set()).union(*(t.regions for t in tensors)),
    )


def instantiate(machine: Machine, cls: Class, arguments: Arguments) -> Value:
    """A new instance, its `__init__` run."""
    if "torch.autograd.Function" in cls.bases:
        return UNKNOWN
    made = classes.blank(machine, cls)
    machine.reached.setdefault(cls.node, 0)
    machine.reached[cls.node] += 1
    initialise(machine, made, arguments.positional, arguments.keywords)
    return made


def initialise(machine: Machine, made: Object, positional: list[Value], keywords: dict[str, Value]) -> None:
    """Run `__init__`, or give a dataclass its fields."""
    assert made.cls is not None
    method = made.cls.method("__init__")
    if method is not None:
        run_function(machine, Function(method.node, method.scope, made), positional, keywords)
    else:
        _fill_fields(machine, made, positional, keywords)


def _fill_fields(machine: Machine, made: Object, positional: list[Value], keywords: dict[str, Value]) -> None:
    """The fields of a dataclass: arguments in order, by name, or defaults."""
    assert made.cls is not None
    body = made.cls.node.body
    fields = [n for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    made.attributes.update(keywords)
    for number, node in enumerate(fields):
        assert isinstance(node.target, ast.Name)
        name = node.target.id
        if number < len(positional):
            made.attributes[name] = positional[number]
        elif name not in keywords and isinstance(node.value, ast.Call):
            factory = next((k.value for k in node.value.keywords if k.arg == "default_factory"), None)
            if factory is not None:
                made.attributes[name] = call_value(machine, node.value, evaluate(machine, factory), Arguments([]))


def run_function(machine: Machine, function: Function, positional: list[Value], keywords: dict[str, Value]) -> Value:
    """Run a function of this module in place, and give what it returns."""
    node = function.node
    running = any(frame.function is not None and frame.function.node is node for frame in machine.frames)
    if running or len(machine.frames) > MAX_DEPTH or machine.reached.get(node, 0) >= MAX_INLINED:
        return UNKNOWN
    machine.reached[node] = machine.reached.get(node, 0) + 1
    parent = function.scope.parent if function.scope.is_class else function.scope
    frame = Frame(Scope({}, parent), function)
    changes = _decorations(machine, node)
    machine.frames.append(frame)
    name = getattr(node, "name", "lambda")
    with machine.inside(functions=(*machine.functions, name), **changes):
        _bind_parameters(machine, function, positional, keywords)
        frame.regions = machine.regions
        value = _run_body(machine, node, frame)
    machine.frames.pop()
    return value


def _run_body(machine: Machine, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, frame: Frame) -> Value:
    from amp_core.lint.interpreter.statements import run_block

    if isinstance(node, ast.Lambda):
        return evaluate(machine, node.body)
    before = machine.regions
    run_block(machine, node.body)
    if frame.yielded:
        if frame.regions != before:
            return frame.regions[-1].context
        return Iterable(_joined(frame.yielded))
    return _joined(frame.returned) if frame.returned else Const(None)


def _joined(values: list[Value]) -> Value:
    found = values[0]
    for value in values[1:]:
        found = join(found, value)
    return found


def _decorations(machine: Machine, node: ast.AST) -> dict[str, object]:
    """What decorators put around a call: autocast, no_grad."""
    changes: dict[str, object] = {}
    for decorator in getattr(node, "decorator_list", []):
        events = len(machine.trace.events)
        value = evaluate(machine, decorator)
        contexts.enter(machine, value, decorator, changes)
        if isinstance(decorator, ast.Attribute):
            note_deprecated(machine, decorator, value)
        del machine.trace.events[events:]
    return changes


def _bind_parameters(machine: Machine, function: Function, positional: list[Value], keywords: dict[str, Value]) -> None:
    spec = function.node.args
    names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
    values = list(positional)
    if function.owner is not None and names:
        machine.scope.names[names.pop(0)] = function.owner
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        if default is not None:
            defaults[argument.arg] = default
    for number, name in enumerate(names):
        if number < len(values):
            machine.bind(name, values[number])
        elif name in keywords:
            machine.bind(name, keywords[name])
        else:
            machine.bind(name, evaluate(machine, defaults[name]) if name in defaults else UNKNOWN)
    for argument in spec.kwonlyargs:
        name = argument.arg
        fallback = evaluate(machine, defaults[name]) if name in defaults and name not in keywords else UNKNOWN
        machine.bind(name, keywords.get(name, fallback))
    if spec.vararg is not None:
        rest = values[len(names) :]
        machine.bind(spec.vararg.arg, Items(rest) if rest else UNKNOWN)
    if spec.kwarg is not None:
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        machine.bind(spec.kwarg.arg, Mapping({k: v for k, v in keywords.items() if k not in known}, open=True))
