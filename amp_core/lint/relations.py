"""Questions that several rules ask about events: which models overlap, which backward an event follows."""

from __future__ import annotations

from collections.abc import Iterable

from amp_core.lint.events import Event, Trace, together, within
from amp_core.lint.values import Object, Scaler


def contained(model: Object) -> set[Object]:
    """A model and all models in it."""
    found: set[Object] = set()
    pending = [model]
    while pending:
        one = pending.pop()
        if one in found:
            continue
        found.add(one)
        pending.extend(v for v in (*one.children, *one.attributes.values()) if isinstance(v, Object) and v.is_module)
    return found


def overlap(first: Iterable[Object], second: Iterable[Object]) -> bool | None:
    """Whether two groups of models share one; None where a group is empty or has a model known only by its use."""
    left, right = set(first), set(second)
    if not left or not right or any(not m.kind or m.kind == "any" for m in (*left, *right)):
        return True if left & right else None
    all_left = set().union(*(contained(m) for m in left))
    all_right = set().union(*(contained(m) for m in right))
    return bool(all_left & right or all_right & left)


def optimized(event: Event) -> frozenset[Object]:
    """The models of the optimizer of an event."""
    return event.optimizer.models if event.optimizer is not None else frozenset()


def scaled_backwards(trace: Trace) -> list[Event]:
    """Backward passes of losses that carry a loss scale."""
    return [e for e in trace.of("backward") if e.tensor is not None and e.tensor.scaled is not None]


def plain_backwards(trace: Trace) -> list[Event]:
    """Backward passes of losses that certainly carry none."""
    return [e for e in trace.of("backward") if e.tensor is None or e.tensor.scaled is None]


def before(events: Iterable[Event], event: Event) -> list[Event]:
    """Those of `events` that come before `event` in one pass."""
    return [e for e in events if e.index < event.index and together(e, event)]


def after(events: Iterable[Event], event: Event) -> list[Event]:
    """Those of `events` that come after `event` in one pass."""
    return [e for e in events if e.index > event.index and together(e, event)]


def same_optimizer(first: Event, second: Event) -> bool:
    """Whether two events may be about one optimizer."""
    return first.optimizer is None or second.optimizer is None or first.optimizer is second.optimizer


def model_loops(event: Event) -> tuple[int, ...]:
    """The loops in which the optimizer of an event was made."""
    return event.optimizer.loops if event.optimizer is not None else ()


def scalers_of(trace: Trace) -> set[Scaler]:
    """Scalers that step an optimizer in this trace."""
    return {e.scaler for e in trace.of("step") if e.scaler is not None}


def repeats_together(first: Event, second: Event) -> bool:
    """Whether a loop runs both again and again."""
    shared = [a for a, b in zip(first.loops, second.loops, strict=False) if a == b]
    return bool(shared) and (within(first, second) or within(second, first) or bool(shared))
