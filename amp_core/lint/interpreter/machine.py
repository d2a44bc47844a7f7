"""The interpreter's state: stacks of loops, conditions, regions and calls, and the trace being written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from amp_core.lint.events import Condition, Context, Event, Region, Trace
from amp_core.lint.interpreter.ducks import Ducks
from amp_core.lint.program import Program
from amp_core.lint.values import UNKNOWN, Autocast, Function, Scope, Unknown, Value

MAX_DEPTH = 7
MAX_STATEMENTS = 12_000
MAX_INLINED = 24


@dataclass(eq=False, slots=True)
class Frame:
    """One call being run: where its names live, what it has returned and yielded so far."""

    scope: Scope
    function: Function | None = None
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)
    regions: tuple[Region, ...] = ()


@dataclass(eq=False)
class Machine:
    """Runs statements and expressions of one module; `program` receives what they do."""

    program: Program
    ducks: Ducks
    mutable_attributes: frozenset[str]
    trace: Trace = field(default_factory=lambda: Trace("module"))
    frames: list[Frame] = field(default_factory=list)
    loops: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    regions: tuple[Region, ...] = ()
    functions: tuple[str, ...] = ()
    no_grad: bool = False
    loop_count: int = 0
    statements: int = 0
    reached: dict[ast.AST, int] = field(default_factory=dict)
    assigned: dict[ast.AST, frozenset[str]] = field(default_factory=dict)
    by_text: dict[str, Value] = field(default_factory=dict)
    _context: Context | None = None

    @property
    def scope(self) -> Scope:
        return self.frames[-1].scope

    @property
    def context(self) -> Context:
        if self._context is None:
            self._context = Context(self.loops, self.conditions, self.regions, self.functions, self.no_grad)
        return self._context

    @property
    def autocast(self) -> Region | None:
        return self.regions[-1] if self.regions and self.regions[-1].enabled is not False else None

    def emit(self, kind: str, node: ast.AST, **fields: Any) -> Event:
        """Record an event here and now."""
        event = Event(kind, node, len(self.trace.events), self.context, **fields)
        self.trace.events.append(event)
        return event

    @contextmanager
    def inside(self, **changes: Any) -> Iterator[None]:
        """Run a block with some of the stacks extended; they are as before afterwards."""
        before = {name: getattr(self, name) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        self._context = None
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)
            self._context = None

    def new_loop(self) -> tuple[int, ...]:
        self.loop_count += 1
        return (*self.loops, self.loop_count)

    def enter(self, context: Autocast, node: ast.AST, *, assumed: bool = False) -> Region:
        """A new entry into an autocast context."""
        region = Region(context, node, len(self.loops), len(self.program.regions), assumed)
        self.program.regions.append(region)
        return region

    def stay_in(self, regions: tuple[Region, ...]) -> None:
        """Regions that last until the enclosing `inside` ends."""
        self.regions = regions
        self._context = None

    def bind(self, name: str, value: Value) -> None:
        """Bind a name in the scope that owns it; what is unknown takes the kind that its use shows."""
        if isinstance(value, Unknown):
            value = self.ducks.value_for(name, self.loops) or value
        scope = self.scope
        if name in scope.globals:
            while scope.parent is not None:
                scope = scope.parent
        scope.names[name] = value

    def lookup(self, name: str) -> Value:
        """The value of a name, UNKNOWN if it is bound nowhere here."""
        scope = self.scope.find(name)
        return scope.names[name] if scope is not None else UNKNOWN

    def remembered(self, text: str) -> Value:
        """The value of an attribute path on something unknown, by its text."""
        known = self.by_text.get(text)
        if known is None:
            known = self.ducks.value_for(text, self.loops) or UNKNOWN
            self.by_text[text] = known
        return known
