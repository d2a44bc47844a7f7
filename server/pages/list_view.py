"""The view of a list as its address says it, and the addresses of the views beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode

from server.errors import Fault, Invalid
from server.runs.queries import Archived

ARCHIVED: tuple[Archived, ...] = ("no", "only", "any")
FIELDS = ("q", "workload", "state", "archived", "in", "group", "open", "sort", "cols", "cursor")
DEFAULTS = {"archived": "no"}
MAX_OPEN = 10
_MAX_CHARS = {"q": 400, "sort": 220, "cursor": 800, "cols": 4000}


@dataclass(frozen=True, kw_only=True)
class ListView:
    """What a list shows. ``fields`` has only what differs from the default; ``open`` are the keys of open groups."""

    page: Literal["experiments", "runs"]
    default_sort: str
    fields: Mapping[str, str] = field(default_factory=dict)
    open: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        return self.fields.get(name, self.default_sort if name == "sort" else DEFAULTS.get(name, ""))

    @property
    def query(self) -> str:
        """The part of the address after the question mark, without the place in the list."""
        return _query({name: value for name, value in self.fields.items() if name != "cursor"}, self.open)

    @property
    def href(self) -> str:
        return _address(self.page, self.fields, self.open)

    @property
    def filtered(self) -> bool:
        return any(self.fields.get(name) for name in ("q", "workload", "state", "archived", "in"))

    def but(self, **changes: str) -> str:
        """The address of the same view with other fields, from its first page; ``in_`` stands for ``in``."""
        given = {name.rstrip("_"): value for name, value in changes.items()}
        fields = {**self.fields, **given}
        if "cursor" not in given:
            fields.pop("cursor", None)
        if "group" in given or "in" in given:
            return _address(self.page, fields, ())
        return _address(self.page, fields, self.open)

    def sorted_by(self, key: str, first_down: bool = False) -> str:
        """The address of the view sorted by ``key``; a second press turns the order round."""
        first, second = (f"-{key}", key) if first_down else (key, f"-{key}")
        sort = second if self.get("sort") == first else first
        return self.but(sort=sort if sort != self.default_sort else "")

    def toggled(self, key: str) -> str:
        """The address with the group of ``key`` opened or closed."""
        still = tuple(other for other in self.open if other != key)
        opened = still if key in self.open else (*still, key)[-MAX_OPEN:]
        fields = {name: value for name, value in self.fields.items() if name != "cursor"}
        return _address(self.page, fields, opened)

    def direction(self, key: str) -> str:
        """``ascending``, ``descending`` or nothing, as ``aria-sort`` wants it."""
        sort = self.get("sort")
        return "" if sort.removeprefix("-") != key else ("descending" if sort.startswith("-") else "ascending")


def view_of(page: Literal["experiments", "runs"], default_sort: str, params: Any) -> ListView:
    """The view in the query parameters of a request; unknown and empty ones are left out. Raises `Invalid`."""
    fields = {name: params[name].strip() for name in FIELDS if name != "open" and params.get(name, "").strip()}
    faults = [
        Fault(field=name, value=value[:80], rule=f"it has {len(value)} characters", remedy=f"use at most {limit}")
        for name, value in fields.items()
        if len(value) > (limit := _MAX_CHARS.get(name, 200))
    ]
    if faults:
        raise Invalid(faults)
    if fields.get("archived") not in ARCHIVED[1:]:
        fields.pop("archived", None)
    if fields.get("sort") == default_sort:
        fields.pop("sort")
    cols = [name for name in params.getlist("cols") if name]
    if cols:
        fields["cols"] = ",".join(dict.fromkeys(",".join(cols).split(",")))
    opened = tuple(dict.fromkeys(key for key in params.getlist("open") if key))[:MAX_OPEN]
    return ListView(page=page, default_sort=default_sort, fields=fields, open=opened)


def _address(page: str, fields: Mapping[str, str], opened: tuple[str, ...]) -> str:
    query = _query(fields, opened)
    return f"/{page}?{query}" if query else f"/{page}"


def _query(fields: Mapping[str, str], opened: tuple[str, ...]) -> str:
    pairs = [(name, fields[name]) for name in FIELDS if fields.get(name)]
    return urlencode([*pairs, *(("open", key) for key in opened)])
