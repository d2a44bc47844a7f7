"""Lists of runs: filtered, sorted and paged in SQL."""

from __future__ import annotations

import math
from typing import Any, cast, get_args

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session, contains_eager, selectinload

from server.db.tables import Experiment, Run, Series, Workload
from server.errors import Fault, Invalid
from server.paging import decode_cursor, encode_cursor
from server.runs.queries import RunFilter, runs_json
from server.search.conditions import newest_series, run_conditions, summary_column
from server.search.language import parse
from server.search.terms import Part

Page = tuple[list[dict[str, Any]], str | None]


def list_runs(
    session: Session, chosen: RunFilter, *, sort: str = "-created", cursor: str | None = None, limit: int = 50
) -> Page:
    """One page of runs and the cursor of the next.

    ``sort`` is ``created``, or a metric such as ``eval/accuracy`` or ``eval/loss.min``; with ``-`` before it the newest
    or highest come first. Runs without the metric come last, newest first. Raises `Invalid`.
    """
    name = sort.removeprefix("-")
    if name == "created":
        return _by_age(session, filtered(chosen), cursor, limit, down=sort.startswith("-"))
    base, _, part = name.rpartition(".")
    if not base or part not in get_args(Part):
        base, part = name, "last"
    return _by_metric(session, chosen, base, cast(Part, part), sort.startswith("-"), cursor, limit)


def _by_age(session: Session, query: Select[Run], cursor: str | None, limit: int, *, down: bool) -> Page:
    if cursor is not None:
        (last_id,) = decode_cursor(cursor, int)
        query = query.where(Run.id < last_id if down else Run.id > last_id)
    query = query.order_by(Run.id.desc() if down else Run.id)
    runs = session.scalars(query.limit(limit + 1)).unique().all()
    page = runs[:limit]
    return runs_json(session, page), encode_cursor(page[-1].id) if len(runs) > limit else None


def _by_metric(
    session: Session, chosen: RunFilter, name: str, part: Part, down: bool, cursor: str | None, limit: int
) -> Page:
    place = _place(cursor)
    found: list[tuple[Run, float | None]] = []
    if place is None or place[0] is not None:
        found += _with_metric(session, chosen, name, part, down, place, limit + 1)
    if len(found) <= limit:
        after = place[1] if place is not None and place[0] is None else None
        found += [(run, None) for run in _without_metric(session, chosen, name, part, after, limit + 1 - len(found))]
    page = found[:limit]
    following = None
    if len(found) > limit:
        run, value = page[-1]
        following = encode_cursor("" if value is None else repr(value), run.id)
    return runs_json(session, [run for run, _ in page]), following


def _place(cursor: str | None) -> tuple[float | None, int] | None:
    if cursor is None:
        return None
    value, run_id = decode_cursor(cursor, str, int)
    try:
        number = float(value) if value else None
    except ValueError:
        number = math.nan
    if number is not None and not math.isfinite(number):
        rule = "this cursor is of another sort order"
        raise Invalid([Fault(field="cursor", value=cursor, rule=rule, remedy="leave it out")])
    return number, run_id


def _with_metric(
    session: Session, chosen: RunFilter, name: str, part: Part, down: bool, place: Any, limit: int
) -> list[tuple[Run, float | None]]:
    column = summary_column(part)
    query = (
        filtered(chosen).add_columns(column).join(Series, Series.run_id == Run.id)
        .where(newest_series(name), column.is_not(None))
    )  # fmt: skip
    if place is not None:
        value, run_id = place
        query = query.where(or_(column < value if down else column > value, and_(column == value, Run.id < run_id)))
    query = query.order_by(column.desc() if down else column, Run.id.desc())
    return [(run, value) for run, value in session.execute(query.limit(limit)).unique()]


def _without_metric(
    session: Session, chosen: RunFilter, name: str, part: Part, after: int | None, limit: int
) -> list[Run]:
    having = select(Series.run_id).where(newest_series(name), summary_column(part).is_not(None))
    query = filtered(chosen).where(Run.id.not_in(having)).order_by(Run.id.desc())
    if after is not None:
        query = query.where(Run.id < after)
    return list(session.scalars(query.limit(limit)).unique())


def filtered(chosen: RunFilter) -> Select[Run]:
    """The runs a filter lets through, with the name of their experiment and their worker. Raises `Invalid`."""
    query = (
        select(Run)
        .join(Run.experiment)
        .options(contains_eager(Run.experiment).load_only(Experiment.name), selectinload(Run.worker))
    )
    if chosen.experiment_id is not None:
        query = query.where(Run.experiment_id == chosen.experiment_id)
    for column, value in (
        (Run.state, chosen.state),
        (Run.kind, chosen.kind),
        (Run.role, chosen.role),
        (Run.recipe_name, chosen.recipe),
    ):
        if value is not None:
            query = query.where(column == value)
    if chosen.workload is not None:
        query = query.where(Experiment.workload_id.in_(select(Workload.id).where(Workload.name == chosen.workload)))
    if chosen.q:
        query = query.where(*run_conditions(parse(chosen.q)))
    return query
