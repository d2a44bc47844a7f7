"""One row per series and attempt that answers count, range, last, minimum and maximum without reading a point."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Table, bindparam, insert, select, update
from sqlalchemy.orm import Session

from server.db.json_values import spell
from server.db.tables import Series
from server.metrics.codec import Points

_DOUBLE = struct.Struct("<d")


class Summary(NamedTuple):
    """The columns of a `Series` row that answers tell of: plain, because a list of runs has hundreds."""

    name: str
    attempt: int
    num_points: int
    first_step: int
    last_step: int
    last_value: bytes
    finite_min: float | None
    finite_max: float | None
    finite_sum: float
    num_nan: int
    num_pos_inf: int
    num_neg_inf: int
    first_non_finite_step: int | None


_LARGEST = float(np.finfo(np.float64).max)
_TABLE = cast(Table, Series.__table__)
_STATE = [column for column in _TABLE.columns if column.name not in ("run_id", "attempt", "is_newest")]
_INSERT = insert(_TABLE)
_UPDATE = (
    update(_TABLE)
    .where(
        _TABLE.c.run_id == bindparam("of_run"),
        _TABLE.c.attempt == bindparam("of_attempt"),
        _TABLE.c.name == bindparam("of_name"),
    )
    .values({column.name: bindparam(column.name) for column in _STATE if column.name != "name"})
)
_LISTED = (
    select(
        _TABLE.c.run_id, _TABLE.c.name, _TABLE.c.num_points, _TABLE.c.last_value, _TABLE.c.finite_min,
        _TABLE.c.finite_max, _TABLE.c.finite_sum, _TABLE.c.num_nan, _TABLE.c.num_pos_inf, _TABLE.c.num_neg_inf,
        _TABLE.c.first_non_finite_step,
    )
    .where(_TABLE.c.run_id.in_(bindparam("of_runs", expanding=True)), _TABLE.c.is_newest)
    .order_by(_TABLE.c.run_id, _TABLE.c.name)
)  # fmt: skip
_COLUMNS = (Series.run_id, *(getattr(Series, field) for field in Summary._fields))


def update_summaries(session: Session, run_id: int, attempt: int, columns: dict[str, Points]) -> None:
    """Merge newly stored points into the rows of their series.

    The last value is the one at the highest step, the latest to arrive when that step repeats. Rows are read and
    written as plain values: a run does this once a second for as long as it lives.
    """
    columns = {name: points for name, points in columns.items() if len(points)}
    query = select(*_STATE).where(Series.run_id == run_id, Series.attempt == attempt, Series.name.in_(columns))
    known = {row.name: dict(row._mapping) for row in session.execute(query)}
    new = [name for name in columns if name not in known]
    if new and attempt > 1:
        older = (Series.run_id == run_id, Series.attempt < attempt, Series.name.in_(new))
        session.execute(update(Series).where(*older).values(is_newest=False))
    connection = session.connection()
    if new:
        rows = [_merged(_first(name, columns[name]), columns[name]) for name in new]
        connection.execute(_INSERT, [{"run_id": run_id, "attempt": attempt, **row} for row in rows])
    if known:
        rows = [_merged(row, columns[name]) for name, row in known.items()]
        key = {"of_run": run_id, "of_attempt": attempt}
        connection.execute(_UPDATE, [{**key, "of_name": row.pop("name"), **row} for row in rows])


def summaries_of(session: Session, run_ids: Sequence[int]) -> dict[int, dict[str, Summary]]:
    """The summaries of the runs' series by run and name, each from the newest attempt that has the series."""
    newest: dict[int, dict[str, Summary]] = {}
    query = select(*_COLUMNS).where(Series.run_id.in_(run_ids), Series.is_newest)
    for row in session.execute(query.order_by(Series.run_id, Series.name)):
        newest.setdefault(row[0], {})[row[1]] = Summary._make(row[1:])
    return newest


def listed_summaries(session: Session, run_ids: Sequence[int]) -> dict[int, dict[str, dict[str, Any]]]:
    """What lists of runs show of each series, by run and name: the fields of `summary_json` that they need.

    Plain rows to plain dicts: fifty runs of twenty series are a thousand of them.
    """
    listed: dict[int, dict[str, dict[str, Any]]] = {}
    rows = session.connection().execute(_LISTED, {"of_runs": list(run_ids)})
    for run_id, name, size, packed, low, high, total, nan, pos_inf, neg_inf, first in rows:
        last = _DOUBLE.unpack(packed)[0]
        num_finite = size - nan - pos_inf - neg_inf
        listed.setdefault(run_id, {})[name] = {
            "last": last if isfinite(last) else spell(last),
            "min": low,
            "max": high,
            "mean": total / num_finite if num_finite else None,
            "num_points": size,
            "num_nan": nan,
            "num_pos_inf": pos_inf,
            "num_neg_inf": neg_inf,
            "first_non_finite_step": first,
        }
    return listed


def summary_json(row: Summary) -> dict[str, Any]:
    """A summary as REST gives it: minimum and maximum over finite values, the last value as it is."""
    return {
        "name": row.name,
        "attempt": row.attempt,
        "num_points": row.num_points,
        "first_step": row.first_step,
        "last_step": row.last_step,
        "last": spell(last_value(row)),
        "min": row.finite_min,
        "max": row.finite_max,
        "mean": mean_value(row),
        "num_nan": row.num_nan,
        "num_pos_inf": row.num_pos_inf,
        "num_neg_inf": row.num_neg_inf,
        "first_non_finite_step": row.first_non_finite_step,
    }


def last_value(row: Summary) -> float:
    """The value at the last step, exactly as logged: possibly NaN or infinite."""
    value: float = _DOUBLE.unpack(row.last_value)[0]
    return value


def mean_value(row: Summary) -> float | None:
    """The mean of the finite values; None when there are none."""
    num_finite = row.num_points - row.num_nan - row.num_pos_inf - row.num_neg_inf
    return row.finite_sum / num_finite if num_finite else None


def _first(name: str, points: Points) -> dict[str, Any]:
    """The summary of no point yet, of a series that begins with these."""
    first = int(points.steps[0])
    return {
        "name": name, "num_points": 0, "first_step": first, "last_step": first, "last_value": b"", "finite_last": None,
        "finite_min": None, "finite_max": None, "finite_sum": 0.0, "num_nan": 0, "num_pos_inf": 0, "num_neg_inf": 0,
        "first_non_finite_step": None,
    }  # fmt: skip


def _merged(row: dict[str, Any], points: Points) -> dict[str, Any]:
    """The summary with further points in it."""
    steps, values = points.steps, points.values
    is_finite = np.isfinite(values)
    finite = values if is_finite.all() else values[is_finite]
    row["num_points"] += len(points)
    row["first_step"] = min(row["first_step"], int(steps.min()))
    if len(finite):
        low, high = float(finite.min()), float(finite.max())
        row["finite_min"] = low if row["finite_min"] is None else min(row["finite_min"], low)
        row["finite_max"] = high if row["finite_max"] is None else max(row["finite_max"], high)
        row["finite_sum"] = _running_sum(row["finite_sum"], finite)
    if len(finite) < len(values):
        row["num_nan"] += int(np.isnan(values).sum())
        row["num_pos_inf"] += int(np.isposinf(values).sum())
        row["num_neg_inf"] += int(np.isneginf(values).sum())
        first, known = int(steps[~is_finite].min()), row["first_non_finite_step"]
        row["first_non_finite_step"] = first if known is None else min(known, first)
    newest = len(steps) - 1 - int(np.argmax(steps[::-1]))  # the last of the points at the highest step
    if int(steps[newest]) >= row["last_step"]:
        last = float(values[newest])
        row["last_step"] = int(steps[newest])
        row["last_value"] = values[newest : newest + 1].tobytes()
        row["finite_last"] = last if is_finite[newest] else None
    return row


def _running_sum(total: float, values: NDArray[np.float64]) -> float:
    """Added one by one, so that the sum does not depend on how the points were batched; kept finite for SQL."""
    if len(values) == 1:
        return max(-_LARGEST, min(_LARGEST, total + float(values[0])))
    with np.errstate(over="ignore"):
        return float(np.nan_to_num(np.cumsum(np.concatenate(([total], values)))[-1]))
