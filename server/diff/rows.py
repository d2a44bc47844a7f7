"""Nested facts of several runs as flat rows, each with whether the runs differ in it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One fact under its dotted name; ``values`` are in the order of the runs, None where a run does not have it.

    ``unknown`` are the indexes of runs of which nothing is recorded.
    """

    name: str
    values: tuple[Any, ...]
    unknown: frozenset[int] = frozenset()

    @property
    def differs(self) -> bool:
        """Whether two runs have different values; a run without the value differs from one with it.

        Runs of which nothing is recorded differ from none.
        """
        known = [value for index, value in enumerate(self.values) if index not in self.unknown]
        return len({json.dumps(value, sort_keys=True) for value in known}) > 1


def flat(facts: Mapping[str, Any] | None, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Pairs of dotted name and leaf; lists are leaves, empty mappings are left out."""
    for name, value in (facts or {}).items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def rows_of(facts: Sequence[Mapping[str, Any] | None]) -> list[Row]:
    """A row for each name that any of the runs has, in the order in which the names first appear.

    None stands for a run of which nothing is recorded.
    """
    unknown = frozenset(index for index, each in enumerate(facts) if each is None)
    told = [dict(flat(each)) for each in facts]
    names = dict.fromkeys(name for each in told for name in each)
    return [Row(name=name, values=tuple(each.get(name) for each in told), unknown=unknown) for name in names]


def alike(rows: Sequence[Row], num_runs: int) -> list[list[int]]:
    """The runs' indexes in groups that have the same value in every row, in the order of their first run."""
    groups: dict[str, list[int]] = {}
    for index in range(num_runs):
        key = json.dumps([row.values[index] for row in rows], sort_keys=True)
        groups.setdefault(key, []).append(index)
    return list(groups.values())
