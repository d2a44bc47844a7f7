"""Several possible values: joining branches, and asking what all alternatives have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amp_core.lint.values import (
    UNKNOWN,
    Autocast,
    Class,
    Const,
    DType,
    Function,
    Items,
    Mapping,
    NullContext,
    OneOf,
    Optimizer,
    Parameters,
    Scaler,
    Tensor,
    Unknown,
    Value,
)

MAX_ALTERNATIVES = 4


def alternatives(value: Value) -> tuple[Value, ...]:
    """The values that `value` may be."""
    return value.alternatives if isinstance(value, OneOf) else (value,)


def join(first: Value, second: Value) -> Value:
    """What is known when either may be the case."""
    if first is second:
        return first
    if isinstance(first, Const) and isinstance(second, Const) and _same(first.value, second.value):
        return first
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return join_tensors(first, second)
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        return _join_unknown(first, second)
    found: list[Value] = []
    for value in (*alternatives(first), *alternatives(second)):
        if not any(_equal(value, other) for other in found):
            found.append(value)
    if len(found) == 1:
        return found[0]
    return OneOf(tuple(found)) if len(found) <= MAX_ALTERNATIVES else UNKNOWN


def _join_unknown(first: Value, second: Value) -> Value:
    """Objects with identity stay visible beside the unknown: what is done to them matters; the rest is forgotten."""
    for value in (*alternatives(first), *alternatives(second)):
        if isinstance(value, Scaler | Optimizer):
            return value
    return UNKNOWN


def join_tensors(first: Tensor, second: Tensor) -> Tensor:
    """Keep what both have; regions, models and a loss scale are kept from either."""
    merged = first.plain()
    return replace(
        merged,
        dtype=first.dtype if first.dtype == second.dtype else None,
        models=first.models | second.models,
        regions=first.regions | second.regions,
        scaled=first.scaled or second.scaled,
        divided=first.divided or second.divided,
        multiplied=first.multiplied or second.multiplied,
        from_grad=first.from_grad and second.from_grad,
        is_number=first.is_number and second.is_number,
        parameter_of=first.parameter_of if first.parameter_of is second.parameter_of else None,
        gradient_of=first.gradient_of if first.gradient_of is second.gradient_of else None,
    )


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)


def _equal(first: Value, second: Value) -> bool:
    if first is second:
        return True
    if isinstance(first, Const) and isinstance(second, Const):
        return _same(first.value, second.value)
    if isinstance(first, DType) and isinstance(second, DType):
        return first.name == second.name
    return isinstance(first, NullContext) and isinstance(second, NullContext)


def only(value: Value, kind: type[Any]) -> Any:
    """The one alternative of this kind, when the others are None, unknown or do nothing; else None."""
    found = [v for v in alternatives(value) if isinstance(v, kind)]
    return found[0] if len(found) == 1 else None


def strings(value: Value) -> frozenset[str] | None:
    """The strings that a value may be, or None when it may be anything else."""
    found = [v.value for v in alternatives(value) if isinstance(v, Const) and isinstance(v.value, str)]
    return frozenset(found) if found and len(found) == len(alternatives(value)) else None


def truth(value: Value) -> bool | None:
    """The truth of a value, if all its alternatives agree and are known."""
    found = {_truth_of(v) for v in alternatives(value)}
    return found.pop() if len(found) == 1 else None


def _truth_of(value: Value) -> bool | None:
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, Scaler | Optimizer | Autocast | DType | Function | Class | Parameters):
        return True
    if isinstance(value, Items | Mapping) and not value.open:
        return bool(value.items)
    return None
