"""Logged calls to columns of a segment: many small rows to few arrays."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import chain

from amp_core.events import Column

Call = tuple[int, float, tuple[str, ...], tuple[float, ...]]  # step, unix time, names, values


def columns_of(calls: Sequence[Call]) -> list[Column]:
    """One column per metric, its points in the order of the calls."""
    if not calls:
        return []
    steps, times, names, values = zip(*calls, strict=True)
    if names.count(names[0]) == len(names):
        return _together(names[0], steps, times, values)
    groups: dict[tuple[str, ...], list[Call]] = {}
    for call in calls:
        groups.setdefault(call[2], []).append(call)
    num_groups = Counter(chain.from_iterable(groups))
    columns = []
    for logged, same in groups.items():
        if any(num_groups[name] == 1 for name in logged):
            steps, times, _, values = zip(*same, strict=True)
            columns += [column for column in _together(logged, steps, times, values) if num_groups[column.name] == 1]
    return columns + [_scattered(name, calls) for name, count in num_groups.items() if count > 1]


def _together(
    names: tuple[str, ...], steps: Sequence[int], times: Sequence[float], values: Sequence[tuple[float, ...]]
) -> list[Column]:
    """The columns of metrics that were logged together in this order: no loop in Python touches a point."""
    packed_steps, packed_times = array("q", steps).tobytes(), array("d", times).tobytes()
    flat = array("d", chain.from_iterable(values))
    return [
        Column(name=name, steps=packed_steps, values=flat[place :: len(names)].tobytes(), times=packed_times)
        for place, name in enumerate(names)
    ]


def _scattered(name: str, calls: Sequence[Call]) -> Column:
    """The column of a metric that was logged now with these, now with those."""
    having = [call for call in calls if name in call[2]]
    return Column(
        name=name,
        steps=array("q", [call[0] for call in having]).tobytes(),
        values=array("d", [call[3][call[2].index(name)] for call in having]).tobytes(),
        times=array("d", [call[1] for call in having]).tobytes(),
    )
