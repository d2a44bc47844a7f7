"""Lists of runs: filtered, sorted and paged in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, and_, not_, or_, select
from sqlalchemy.orm import Session, contains_eager, defer, selectinload

from server.db.tables import Experiment, Run, Workload
from server.errors import Fault, Invalid
from server.paging import decode_cursor, encode_cursor
from server.runs.group_keys import in_group
from server.runs.queries import RunFilter, runs_json
from server.runs.sorting import Key, key_of, spell
from server.search.conditions import run_conditions
from server.search.language import parse

Page = tuple[list[dict[str, Any]], str | None]


def list_runs(
    session: Session, chosen: RunFilter, *, sort: str = "-created", cursor: str | None = None, limit: int = 50
) -> Page:
    """One page of runs and the cursor of the next, see `page_of_runs`."""
    runs, following = page_of_runs(session, chosen, sort=sort, cursor=cursor, limit=limit)
    return runs_json(session, runs), following


def page_of_runs(
    session: Session, chosen: RunFilter, *, sort: str = "-created", cursor: str | None = None, limit: int = 50
) -> tuple[Sequence[Run], str | None]:
    """One page of rows and the cursor of the next.

    ``sort`` is one of `server.runs.sorting.SORTS`, a parameter such as ``params.lr``, or a metric such as
    ``eval/accuracy`` or ``eval/loss.min``; with ``-`` before it the newest or highest come first. Runs without the
    value come last, newest first. Raises `Invalid`.
    """
    name, down = sort.removeprefix("-"), sort.startswith("-")
    if name == "created":
        return _by_age(session, filtered(chosen), cursor, limit, down=down)
    return _by_key(session, chosen, key_of(name), down, cursor, limit)


def _by_age(
    session: Session, query: Select[Run], cursor: str | None, limit: int, *, down: bool
) -> tuple[Sequence[Run], str | None]:
    if cursor is not None:
        (last_id,) = decode_cursor(cursor, int)
        query = query.where(Run.id < last_id if down else Run.id > last_id)
    query = query.order_by(Run.id.desc() if down else Run.id)
    runs = session.scalars(query.limit(limit + 1)).unique().all()
    page = runs[:limit]
    return page, encode_cursor(page[-1].id) if len(runs) > limit else None


def _by_key(
    session: Session, chosen: RunFilter, key: Key, down: bool, cursor: str | None, limit: int
) -> tuple[Sequence[Run], str | None]:
    place = _place(cursor, key)
    found: list[tuple[Run, Any]] = []
    if place is None or place[0] is not None:
        found += _with_value(session, chosen, key, down, place, limit + 1)
    if key.having is not None and len(found) <= limit:
        after = place[1] if place is not None and place[0] is None else None
        found += [(run, None) for run in _without_value(session, chosen, key, after, limit + 1 - len(found))]
    page = found[:limit]
    following = None
    if len(found) > limit:
        run, value = page[-1]
        following = encode_cursor(spell(value), run.id)
    return [run for run, _ in page], following


def _place(cursor: str | None, key: Key) -> tuple[Any, int] | None:
    """The value and the id after which a page begins; the value is None among runs without one. Raises `Invalid`."""
    if cursor is None:
        return None
    value, run_id = decode_cursor(cursor, object, int)
    fits = value is None or key.read(value) is not None
    if not fits or (value is None and key.having is None):
        rule = "this cursor is of another sort order"
        raise Invalid([Fault(field="cursor", value=cursor, rule=rule, remedy="leave it out")])
    return (None if value is None else key.read(value)), run_id


def _with_value(
    session: Session, chosen: RunFilter, key: Key, down: bool, place: tuple[Any, int] | None, limit: int
) -> list[tuple[Run, Any]]:
    column = key.value
    query = key.join(filtered(chosen).add_columns(column))
    if place is not None:
        value, run_id = place
        query = query.where(or_(column < value if down else column > value, and_(column == value, Run.id < run_id)))
    query = query.order_by(column.desc() if down else column, Run.id.desc())
    return [(run, value) for run, value in session.execute(query.limit(limit)).unique()]


def _without_value(session: Session, chosen: RunFilter, key: Key, after: int | None, limit: int) -> list[Run]:
    assert key.having is not None, "every run has the value"
    query = filtered(chosen).where(Run.id.not_in(key.having)).order_by(Run.id.desc())
    if after is not None:
        query = query.where(Run.id < after)
    return list(session.scalars(query.limit(limit)).unique())


def filtered(chosen: RunFilter) -> Select[Run]:
    """The runs a filter lets through, with the name of their experiment and their worker. Raises `Invalid`."""
    query = (
        select(Run)
        .join(Run.experiment)
        .options(
            contains_eager(Run.experiment).load_only(Experiment.name),
            selectinload(Run.worker),
            *map(defer, (Run.config, Run.environment, Run.result)),  # kilobytes of JSON that no list shows
        )
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
    if chosen.archived == "only" or (chosen.archived == "no" and chosen.experiment_id is None):
        is_archived = or_(Run.archived_at.is_not(None), Experiment.archived_at.is_not(None))
        query = query.where(is_archived if chosen.archived == "only" else not_(is_archived))
    if chosen.group is not None:
        query = query.where(in_group(*chosen.group))
    if chosen.workload is not None:
        query = query.where(Experiment.workload_id.in_(select(Workload.id).where(Workload.name == chosen.workload)))
    if chosen.q:
        query = query.where(*run_conditions(parse(chosen.q)))
    return query
