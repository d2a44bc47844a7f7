"""Events: what a program does to scalers, optimizers, models and tensors, in order and with its context."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from amp_core.lint.values import Autocast, Object, Optimizer, Scaler, Tensor


@dataclass(frozen=True, slots=True)
class Condition:
    """A branch taken: the question as text, the answer, and its kind (periodic, finite, scale or empty)."""

    key: str
    answer: bool
    kind: str = ""


@dataclass(eq=False, slots=True)
class Region:
    """One entry into an autocast context: `depth` counts the loops around it."""

    context: Autocast
    node: ast.AST
    depth: int
    number: int
    assumed: bool = False

    @property
    def enabled(self) -> bool | None:
        return self.context.enabled

    @property
    def dtype(self) -> str | None:
        return self.context.dtype


@dataclass(frozen=True, slots=True)
class Context:
    """Where an event happens: loops, conditions and autocast regions from outer to inner, and calls on the way."""

    loops: tuple[int, ...] = ()
    conditions: tuple[Condition, ...] = ()
    regions: tuple[Region, ...] = ()
    functions: tuple[str, ...] = ()
    no_grad: bool = False

    @property
    def autocast(self) -> Region | None:
        """The region in force, unless it is switched off."""
        return self.regions[-1] if self.regions and self.regions[-1].enabled is not False else None

    @property
    def disabled(self) -> Region | None:
        """The region in force, if it switches autocast off inside another one that may be on."""
        if not self.regions or self.regions[-1].enabled is not False:
            return None
        return self.regions[-1] if any(r.enabled is not False for r in self.regions[:-1]) else None


@dataclass(eq=False, slots=True)
class Event:
    """Something that matters to a rule; which fields are set depends on `kind`."""

    kind: str
    node: ast.AST
    index: int
    context: Context
    scaler: Scaler | None = None
    optimizer: Optimizer | None = None
    model: Object | None = None
    models: frozenset[Object] = frozenset()
    tensor: Tensor | None = None
    detail: Any = None

    @property
    def loops(self) -> tuple[int, ...]:
        return self.context.loops


@dataclass(eq=False, slots=True)
class Trace:
    """Events from one entry point: the module's body, a method, or a function nobody here calls."""

    name: str
    events: list[Event] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]


def exclusive(first: Event, second: Event) -> bool:
    """Whether the two are in opposite branches of one question, so that never both happen in a pass."""
    answers = {c.key: c.answer for c in first.context.conditions}
    return any(answers.get(c.key, c.answer) is not c.answer for c in second.context.conditions)


def within(inner: Event, outer: Event) -> bool:
    """Whether `inner` is in every loop that `outer` is in."""
    return inner.loops[: len(outer.loops)] == outer.loops


def together(first: Event, second: Event) -> bool:
    """Whether both can happen in one pass of the loops that they share, one of them directly in those loops."""
    return (within(first, second) or within(second, first)) and not exclusive(first, second)


def extra_conditions(event: Event, than: Event) -> list[Condition]:
    """Conditions on `event` that `than` is not under."""
    known = {(c.key, c.answer) for c in than.context.conditions}
    return [c for c in event.context.conditions if (c.key, c.answer) not in known]
