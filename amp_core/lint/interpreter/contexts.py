"""With-blocks: entering autocast, no_grad and the like."""

from __future__ import annotations

import ast
from typing import Any

from amp_core.lint.alternatives import alternatives
from amp_core.lint.interpreter.machine import Machine
from amp_core.lint.values import Autocast, External, NullContext, OneOf, Value

NO_GRAD = {"torch.no_grad", "torch.inference_mode"}


def enter(machine: Machine, value: Value, node: ast.expr, changes: dict[str, Any]) -> None:
    """Add to `changes` what entering `value` does to the stacks."""
    context = autocast_of(value)
    if context is not None:
        regions = changes.get("regions", machine.regions)
        changes["regions"] = (*regions, machine.enter(context, node))
    elif isinstance(value, External) and value.name in NO_GRAD:
        changes["no_grad"] = True


def stay(machine: Machine, value: Value, node: ast.expr) -> None:
    """`stack.enter_context(value)`: in force until the with-block around it ends."""
    changes: dict[str, Any] = {}
    enter(machine, value, node, changes)
    if "regions" in changes:
        machine.stay_in(changes["regions"])


def autocast_of(value: Value) -> Autocast | None:
    """The autocast context that a value is; of several alternatives, what they have in common."""
    found = [v for v in alternatives(value) if isinstance(v, Autocast)]
    if not found:
        return None
    if not isinstance(value, OneOf):
        return found[0]
    others = [v for v in alternatives(value) if not isinstance(v, Autocast)]
    enabled = {v.enabled for v in found} | ({False} if any(isinstance(v, NullContext) for v in others) else set())
    if len(enabled) > 1 or others:
        enabled = {None}
    dtypes = {v.dtype for v in found}
    return Autocast(
        found[0].node,
        dtypes.pop() if len(dtypes) == 1 else None,
        enabled.pop(),
        frozenset().union(*(v.devices for v in found)),
        all(v.cached for v in found),
    )
