"""Reads runs, their series summaries and their place in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Select, func, select, tuple_
from sqlalchemy.orm import Session, contains_eager, selectinload

from server.db.tables import Attempt, Experiment, Run
from server.errors import NotFound
from server.metrics.summaries import listed_summaries
from server.paging import decode_cursor, encode_cursor

STATES = ("queued", "running", "completed", "failed", "cancelled")


Archived = Literal["no", "only", "any"]


@dataclass(frozen=True, kw_only=True)
class RunFilter:
    """Which runs a list shows; None leaves a field open. ``q`` is a query of `server.search.language`."""

    experiment_id: int | None = None
    state: str | None = None
    kind: str | None = None
    role: str | None = None
    recipe: str | None = None
    workload: str | None = None
    q: str | None = None
    archived: Archived = "no"  # themselves or with their experiment; one experiment's runs are all shown


def queue_positions(session: Session, run_ids: Sequence[int] | None = None) -> dict[int, int]:
    """Place in the queue, from 1, of the queued runs (all, or those asked for): by priority, then age."""
    place = func.row_number().over(order_by=(Run.priority.desc(), Run.created_at, Run.id)).label("place")
    ranked = select(Run.id, place).where(Run.state == "queued").subquery()
    query = select(ranked.c.id, ranked.c.place)
    if run_ids is not None:
        query = query.where(ranked.c.id.in_(run_ids))
    return {run_id: rank for run_id, rank in session.execute(query)}  # noqa: C416 - rows are typed only when unpacked


def runs_json(session: Session, runs: Sequence[Run], *, metrics: bool = True) -> list[dict[str, Any]]:
    """Runs as lists show them. Their ``experiment`` and ``worker`` must be loaded, or the session open."""
    ids = [run.id for run in runs]
    series = listed_summaries(session, ids) if metrics and ids else {}
    queued = [run.id for run in runs if run.state == "queued"]
    places = queue_positions(session, queued) if queued else {}
    return [_run_json(run, series.get(run.id, {}), places.get(run.id)) for run in runs]


def _run_json(run: Run, metrics: dict[str, Any], place: int | None) -> dict[str, Any]:
    return {
        "id": run.id,
        "experiment_id": run.experiment_id,
        "experiment_name": run.experiment.name,
        "kind": run.kind,
        "role": run.role,
        "recipe_name": run.recipe_name,
        "recipe": run.recipe,
        "seed": run.seed,
        "state": run.state,
        "step": run.step,
        "steps": run.steps,
        "priority": run.priority,
        "reason": run.reason,
        "numerics": run.numerics,
        "attempt": run.attempt,
        "max_attempts": run.max_attempts,
        "worker": run.worker.name if run.worker is not None else None,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "cancel_requested_at": run.cancel_requested_at,
        "tags": run.tags,
        "archived_at": run.archived_at,
        "queue_position": place,
        "metrics": metrics,
    }


def find_run(session: Session, run_id: int) -> Run:
    """The run with its experiment and worker. Raises `NotFound`."""
    query = select(Run).where(Run.id == run_id).options(selectinload(Run.experiment), selectinload(Run.worker))
    run = session.scalars(query).one_or_none()
    if run is None:
        raise NotFound(f"run {run_id} does not exist")
    return run


def run_detail(session: Session, run_id: int) -> dict[str, Any]:
    """Everything recorded about one run but its points, events, log and artifacts. Raises `NotFound`."""
    run = find_run(session, run_id)
    attempts = session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number))
    return {
        **runs_json(session, [run])[0],
        "workload": run.config.get("workload", {}).get("name", ""),
        "config": run.config,
        "environment": run.environment,
        "result": run.result,
        "attempts": [
            {
                "number": attempt.number,
                "worker": attempt.worker_name,
                "started_at": attempt.started_at,
                "ended_at": attempt.ended_at,
                "outcome": attempt.outcome,
                "reason": attempt.reason,
                "exit_code": attempt.exit_code,
            }
            for attempt in attempts
        ],
    }


def _in_state(state: str) -> Select[Run]:
    named = contains_eager(Run.experiment).load_only(Experiment.name)
    return select(Run).join(Run.experiment).where(Run.state == state).options(named, selectinload(Run.worker))


def queued_runs(
    session: Session, *, cursor: str | None = None, limit: int = 100
) -> tuple[list[dict[str, Any]], str | None]:
    """One page of the queue in the order in which runs are taken, and the cursor of the next."""
    query = _in_state("queued").order_by(Run.priority.desc(), Run.created_at, Run.id)
    if cursor is not None:
        priority, created_at, run_id = decode_cursor(cursor, int, str, int)
        after = (-priority, datetime.fromisoformat(created_at), run_id)
        query = query.where(tuple_(-Run.priority, Run.created_at, Run.id) > after)
    runs = session.scalars(query.limit(limit + 1)).unique().all()
    page = runs[:limit]
    following = None
    if len(runs) > limit:
        last = page[-1]
        following = encode_cursor(last.priority, last.created_at.isoformat(), last.id)
    return runs_json(session, page, metrics=False), following


def running_runs(session: Session) -> list[dict[str, Any]]:
    """What runs now, the longest first."""
    query = _in_state("running").order_by(Run.started_at, Run.id)
    return runs_json(session, session.scalars(query).unique().all())


def num_queued(session: Session) -> int:
    """How many runs wait."""
    return session.scalar(select(func.count()).where(Run.state == "queued")) or 0
