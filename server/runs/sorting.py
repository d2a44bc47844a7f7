"""By what a list of runs is sorted: columns of the row, parameters, metrics. Rows without the value come last."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast, get_args

from sqlalchemy import ColumnElement, Select, func, select

from server.db.tables import Experiment, Run, RunParameter, Series, User, Workload
from server.search.conditions import newest_series, summary_column
from server.search.terms import Part, told_part

ROW_KEYS: dict[str, ColumnElement[Any]] = {
    "experiment": func.lower(Experiment.name),
    "recipe": func.lower(Run.recipe_name),
    "state": Run.state.expression,
    "kind": Run.kind.expression,
    "role": Run.role.expression,
    "seed": Run.seed.expression,
    "step": Run.step.expression,
    "attempt": Run.attempt.expression,
    "workload": select(Workload.name).where(Workload.id == Experiment.workload_id).scalar_subquery(),
    "owner": select(User.name).where(User.id == Experiment.owner_id).scalar_subquery(),
}
_NUMBERS, _TIMES = ("seed", "step", "attempt"), ("started", "ended")
SORTS = ("created", *ROW_KEYS, *_TIMES, "primary")


@dataclass(frozen=True, kw_only=True)
class Key:
    """A value to sort by. ``join`` adds what it needs and keeps rows that have it; ``having`` is their ids."""

    value: ColumnElement[Any]
    kind: type[str] | type[float] | type[datetime]
    join: Callable[[Select[Any]], Select[Any]]
    having: Select[int] | None = None  # None: every row has the value

    def read(self, spelled: object) -> str | float | datetime | None:
        """A value from a cursor; None for one that this key cannot have."""
        if self.kind is float:
            is_number = isinstance(spelled, int | float) and math.isfinite(spelled)
            return cast(float, spelled) if is_number else None
        if self.kind is str or not isinstance(spelled, str):
            return spelled if isinstance(spelled, str) else None
        try:
            moment = datetime.fromisoformat(spelled)
        except ValueError:
            return None
        return moment if moment.tzinfo is not None else None


def key_of(name: str) -> Key:
    """The key of a sort name without its sign: a row's column, ``params.NAME``, ``primary`` or a metric."""
    if name in ROW_KEYS:
        kind = float if name in _NUMBERS else str
        return Key(value=ROW_KEYS[name], kind=kind, join=lambda query: query)
    if name in _TIMES:
        column = getattr(Run, f"{name}_at")
        return Key(
            value=column, kind=datetime, join=lambda query: query.where(column.is_not(None)),
            having=select(Run.id).where(column.is_not(None)),
        )  # fmt: skip
    if name.startswith("params."):
        return _parameter_key(name.removeprefix("params."))
    if name == "primary":
        return _primary_key()
    base, _, part = name.rpartition(".")
    if not base or part not in get_args(Part):
        base, part = name, told_part(name)
    return _series_key(newest_series(base), summary_column(cast(Part, part)))


def primary_name() -> ColumnElement[str]:
    """The series of an experiment's primary metric."""
    name: ColumnElement[str] = "eval/" + Experiment.plan["primary"]["metric"].as_string()
    return name


def is_primary() -> ColumnElement[bool]:
    """That a `Series` row is of its run's primary metric; coalesce keeps plans off the index by name."""
    return func.coalesce(Series.name, "") == primary_name()


def _primary_key() -> Key:
    of_primary = (is_primary(), Series.is_newest, Series.finite_last.is_not(None))
    having = select(Run.id).join(Run.experiment).join(Series, Series.run_id == Run.id).where(*of_primary)
    return Key(
        value=Series.finite_last.expression, kind=float, having=having,
        join=lambda query: query.join(Series, Series.run_id == Run.id).where(*of_primary),
    )  # fmt: skip


def _series_key(which: ColumnElement[bool], column: Any) -> Key:
    return Key(
        value=column, kind=float, having=select(Series.run_id).where(which, column.is_not(None)),
        join=lambda query: query.join(Series, Series.run_id == Run.id).where(which, column.is_not(None)),
    )  # fmt: skip


def _parameter_key(name: str) -> Key:
    of_name = (RunParameter.name == name, RunParameter.number.is_not(None))
    return Key(
        value=RunParameter.number.expression, kind=float,
        having=select(RunParameter.run_id).where(*of_name),
        join=lambda query: query.join(RunParameter, RunParameter.run_id == Run.id).where(*of_name),
    )  # fmt: skip


def spell(value: Any) -> str | float | None:
    """A key's value as a cursor holds it."""
    return value.isoformat() if isinstance(value, datetime) else cast("str | float | None", value)
