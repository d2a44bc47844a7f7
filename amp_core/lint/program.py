"""What rules read: the events of a whole module, by entry point."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from amp_core.lint.events import Event, Region, Trace
from amp_core.lint.values import Class, Scaler


@dataclass(eq=False)
class Program:
    """A module as the interpreter saw it."""

    tree: ast.Module
    traces: list[Trace] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    scalers: list[Scaler] = field(default_factory=list)
    deprecated: list[tuple[ast.AST, str]] = field(default_factory=list)
    ambient: set[str] = field(default_factory=set)
    frameworks: set[str] = field(default_factory=set)

    def of(self, *kinds: str) -> Iterator[Event]:
        """Events of these kinds in all traces."""
        for trace in self.traces:
            yield from trace.of(*kinds)

    @cached_property
    def scales(self) -> bool:
        """Whether anything here scales a loss, or hands that to a framework."""
        return any(s.enabled is not False for s in self.scalers) or bool(self.frameworks)

    @cached_property
    def escaped(self) -> set[Scaler]:
        """Scalers handed to code that is not in this module: what happens to them there is not known."""
        return {event.scaler for event in self.of("escape") if event.scaler is not None}
