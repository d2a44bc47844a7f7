"""Elements of iterables, and short sequences that a loop is unrolled over."""

from __future__ import annotations

from amp_core.lint.alternatives import join
from amp_core.lint.values import UNKNOWN, Const, Items, Iterable, Mapping, Object, OneOf, Parameters, Tensor, Value

MAX_UNROLLED = 4


def element_of(value: Value) -> Value:
    """What iterating over `value` gives."""
    if isinstance(value, Items):
        return _joined(value.items) if value.items and not value.open else UNKNOWN
    if isinstance(value, Iterable):
        return value.element
    if isinstance(value, Parameters):
        return parameter_of(value)
    if isinstance(value, Tensor):
        return value.plain()
    if isinstance(value, OneOf):
        return _joined([element_of(v) for v in value.alternatives])
    if isinstance(value, Object) and value.children:
        return _joined(list(value.children))
    return UNKNOWN


def _joined(items: list[Value]) -> Value:
    found = items[0]
    for item in items[1:]:
        found = join(found, item)
    return found


def parameter_of(value: Parameters) -> Value:
    """One parameter, with its name if asked for."""
    owner = next(iter(value.models)) if len(value.models) == 1 else None
    dtype = "float32" if owner is None else owner.weights
    parameter = Tensor(dtype=dtype, models=value.models, parameter_of=owner)
    return Items([UNKNOWN, parameter]) if value.named else parameter


def unrolled(value: Value) -> list[Value] | None:
    """The items of a short literal sequence of objects, None for everything else."""
    if isinstance(value, Mapping):
        return None
    if not isinstance(value, Items) or value.open or not 0 < len(value.items) <= MAX_UNROLLED:
        return None
    if all(isinstance(item, Const) and not isinstance(item.value, bool | None) for item in value.items):
        return None
    return value.items
