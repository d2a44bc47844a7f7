"""Logged calls to columns of a segment: many small dicts to few arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain

from amp_core.events import Column

Call = tuple[int, float, dict[str, float]]  # step, unix time, metrics


def columns_of(calls: Iterable[Call]) -> list[Column]:
    """One column per metric and set of names logged together; points stay in order of the calls."""
    groups: dict[tuple[str, ...], list[Call]] = {}
    for call in calls:
        groups.setdefault(tuple(call[2]), []).append(call)
    columns = []
    for names, same in groups.items():
        steps = array("q", [call[0] for call in same])
        times = array("d", [call[1] for call in same]).tobytes()
        values = array("d", chain.from_iterable(call[2].values() for call in same))
        packed = steps.tobytes()
        columns += [
            Column(name=name, steps=packed, values=values[place :: len(names)].tobytes(), times=times)
            for place, name in enumerate(names)
        ]
    return columns
