"""Reads experiments: lists, details, progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Select, String, and_, case, cast, func, not_, or_, select, tuple_
from sqlalchemy.orm import Session, contains_eager, selectinload

from server.db.tables import Experiment, Project, Run, User, Workload
from server.errors import Fault, Invalid, NotFound
from server.paging import decode_cursor, encode_cursor
from server.runs.queries import STATES, Archived, runs_json
from server.search.conditions import experiment_conditions
from server.search.language import parse

Sort = Literal[
    "-created_at", "created_at", "name", "-name", "workload", "-workload", "owner", "-owner", "project", "-project",
    "state", "-state",
]  # fmt: skip
PLAN_FIELDS = (
    "params", "recipes", "seeds", "baseline", "steps", "eval_every", "primary", "control", "measure_gain", "device",
    "fork",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExperimentFilter:
    """Which experiments a list shows; None leaves a field open. ``q`` is a query of `server.search.language`."""

    q: str | None = None
    state: str | None = None
    workload: str | None = None
    owner: str | None = None
    project: str | None = None
    archived: Archived = "no"


def find_experiment(session: Session, experiment_id: int) -> Experiment:
    """The experiment with its owner, project and workload. Raises `NotFound`."""
    query = select(Experiment).where(Experiment.id == experiment_id).options(*_parents())
    experiment = session.scalars(query).one_or_none()
    if experiment is None:
        raise NotFound(f"experiment {experiment_id} does not exist")
    return experiment


def _parents() -> tuple[Any, ...]:
    return selectinload(Experiment.owner), selectinload(Experiment.project), selectinload(Experiment.workload)


def progress_of(session: Session, experiment_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Number of runs in each state, and in total, by experiment."""
    counts = {experiment_id: {"total": 0, **dict.fromkeys(STATES, 0)} for experiment_id in experiment_ids}
    query = (
        select(Run.experiment_id, Run.state, func.count())
        .where(Run.experiment_id.in_(experiment_ids))
        .group_by(Run.experiment_id, Run.state)
    )
    for experiment_id, state, count in session.execute(query):
        counts[experiment_id][state] = count
        counts[experiment_id]["total"] += count
    return counts


def experiments_json(session: Session, experiments: Sequence[Experiment]) -> list[dict[str, Any]]:
    """Experiments as lists show them."""
    progress = progress_of(session, [experiment.id for experiment in experiments])
    return [_experiment_json(experiment, progress[experiment.id]) for experiment in experiments]


def _experiment_json(experiment: Experiment, progress: dict[str, int]) -> dict[str, Any]:
    plan, path = experiment.plan, f"/api/v1/experiments/{experiment.id}"
    return {
        "id": experiment.id,
        "name": experiment.name,
        "project": experiment.project.name,
        "workload": experiment.workload.name,
        "source_hash": experiment.workload.source_hash,
        **{field: plan.get(field) for field in PLAN_FIELDS},
        "keep_steps": plan.get("keep_steps") or [],
        "state": experiment.state,
        "progress": progress,
        "created_at": experiment.created_at,
        "ended_at": experiment.ended_at,
        "owner": experiment.owner.name,
        "tags": experiment.tags,
        "note": experiment.note,
        "archived_at": experiment.archived_at,
        "verdicts": verdicts_of(experiment),
        "links": {
            "self": path,
            "page": f"/experiments/{experiment.id}",
            "comparison": f"{path}/comparison",
            "stream": f"{path}/stream",
        },
    }


def verdicts_of(experiment: Experiment) -> list[dict[str, Any]]:
    """Recipe and verdict pairs of a judged experiment; empty before."""
    if experiment.judged_at is None or not experiment.comparison:
        return []
    judged = experiment.comparison.get("recipes", [])
    return [{"recipe": item.get("recipe"), "verdict": item.get("verdict")} for item in judged]


def experiment_detail(session: Session, experiment_id: int) -> dict[str, Any]:
    """One experiment with its submission and its runs, in queue order. Raises `NotFound`."""
    experiment = find_experiment(session, experiment_id)
    query = (
        select(Run)
        .where(Run.experiment_id == experiment_id)
        .order_by(Run.id)
        .options(selectinload(Run.experiment), selectinload(Run.worker))
    )
    runs = session.scalars(query).all()
    return {
        **experiments_json(session, [experiment])[0],
        "submission": experiment.plan.get("submission", {}),
        "runs": runs_json(session, runs),
    }


_TEXT_KEYS: dict[str, Any] = {
    "name": func.lower(Experiment.name),
    "workload": Workload.name,
    "owner": User.name,
    "project": Project.name,
    "state": Experiment.state,
}


def list_experiments(
    session: Session,
    chosen: ExperimentFilter,
    *,
    sort: Sort = "-created_at",
    cursor: str | None = None,
    limit: int = 50,
    newest: bool = False,
) -> tuple[list[dict[str, Any]], str | None]:
    """One page of experiments and the cursor of the next. Raises `Invalid` for a cursor of another list.

    ``newest``: those with the same key stand the newest first, as in a group; ``sort`` is then one of rising texts.
    """
    query, name, down = filtered(chosen), sort.removeprefix("-"), sort.startswith("-")
    by_text = name != "created_at"
    key = _TEXT_KEYS.get(name, Experiment.created_at)
    order: tuple[Any, ...] = (key.desc(), Experiment.id.desc()) if down else (key, Experiment.id)
    if newest:
        order = (key, Experiment.created_at.desc(), Experiment.id.desc())
    if cursor is not None and newest:
        text, moment, last_id = decode_cursor(cursor, str, str, int)
        older = tuple_(Experiment.created_at, Experiment.id) < (_moment(moment), last_id)
        query = query.where(or_(key > text, and_(key == text, older)))
    elif cursor is not None:
        text, last_id = decode_cursor(cursor, str, int)
        after = (text if by_text else _moment(text), last_id)
        place = tuple_(key, Experiment.id)
        query = query.where(place < after if down else place > after)
    rows = session.execute(query.add_columns(key).order_by(*order).limit(limit + 1)).unique().all()
    page, following = [row for row, _ in rows[:limit]], None
    if len(rows) > limit:
        last, value = rows[limit - 1]
        moments = [last.created_at.isoformat()] if newest else []
        following = encode_cursor(value if by_text else value.isoformat(), *moments, last.id)
    return experiments_json(session, page), following


VERDICTS = ("SAFE", "SAFE WITH CAUTION", "UNSAFE", "INCONCLUSIVE")


def group_totals(session: Session, chosen: ExperimentFilter, by: str) -> dict[str, dict[str, int]]:
    """How many experiments each workload, owner, project or state has, and in how many a verdict was given."""
    key, text = _TEXT_KEYS[by], func.coalesce(cast(Experiment.comparison, String), "")
    given = [
        func.sum(case((text.contains(f'"verdict": "{verdict}"', autoescape=True), 1), else_=0)) for verdict in VERDICTS
    ]
    query = filtered(chosen).with_only_columns(key, func.count(), *given, maintain_column_froms=True)
    return {
        str(name): {"total": total, **dict(zip(VERDICTS, counts, strict=True))}
        for name, total, *counts in map(tuple, session.execute(query.group_by(key)))
    }


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        fault = Fault(field="cursor", value=text, rule="this cursor is of another sort order", remedy="leave it out")
        raise Invalid([fault])
    return moment


def filtered(chosen: ExperimentFilter) -> Select[Experiment]:
    """The experiments that a filter lets through, with workload, owner and project loaded. Raises `Invalid`."""
    query = (
        select(Experiment)
        .join(Experiment.workload)
        .join(Experiment.owner)
        .join(Experiment.project)
        .options(
            contains_eager(Experiment.workload), contains_eager(Experiment.owner), contains_eager(Experiment.project)
        )
    )
    for column, value in (
        (Experiment.state, chosen.state),
        (Workload.name, chosen.workload),
        (User.name, chosen.owner),
        (Project.name, chosen.project),
    ):
        if value is not None:
            query = query.where(column == value)
    if chosen.archived != "any":
        is_archived = Experiment.archived_at.is_not(None)
        query = query.where(is_archived if chosen.archived == "only" else not_(is_archived))
    if chosen.q:
        query = query.where(*experiment_conditions(parse(chosen.q)))
    return query
