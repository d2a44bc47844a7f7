"""Reads runs, their series summaries and their place in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, contains_eager, selectinload

from server.db.tables import Attempt, Experiment, Run
from server.errors import NotFound
from server.metrics.summaries import listed_summaries
from server.paging import decode_cursor, encode_cursor
from server.queue.forecast import Turn, turns
from server.queue.seats import seats_of
from server.runs.group_keys import GroupBy

STATES = ("queued", "running", "paused", "completed", "failed", "cancelled")


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
    group: tuple[GroupBy, str] | None = None  # how runs are grouped, and the key of one group
    archived: Archived = "no"  # themselves or with their experiment; one experiment's runs are all shown


def runs_json(session: Session, runs: Sequence[Run], *, metrics: bool = True) -> list[dict[str, Any]]:
    """Runs as lists show them. Their ``experiment`` and ``worker`` must be loaded, or the session open."""
    ids = [run.id for run in runs]
    series = listed_summaries(session, ids) if metrics and ids else {}
    places = turns(session) if any(run.state == "queued" for run in runs) else {}
    return [_run_json(run, series.get(run.id, {}), places.get(run.id)) for run in runs]


def _run_json(run: Run, metrics: dict[str, Any], turn: Turn | None) -> dict[str, Any]:
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
        "pause_requested_at": run.pause_requested_at,
        "num_devices": run.num_devices,
        "num_hosts": run.num_hosts,
        "queue_position": turn.position if turn is not None else None,
        "expected_start_at": turn.starts_at if turn is not None else None,
        "queue_note": turn.note if turn is not None else None,
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
        "seats": seats_of(session, [run_id]).get(run_id, []) if run.num_hosts > 1 else [],
        "attempts": [
            {
                "number": attempt.number,
                "worker": attempt.worker_name,
                "started_at": attempt.started_at,
                "ended_at": attempt.ended_at,
                "outcome": attempt.outcome,
                "reason": attempt.reason,
                "exit_code": attempt.exit_code,
                "devices": attempt.devices,
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
    """One page of the queue in the order in which runs are expected to start, and the cursor of the next."""
    after = decode_cursor(cursor, int)[0] if cursor is not None else 0
    places = turns(session)
    ids = sorted((run_id for run_id, turn in places.items() if turn.position > after), key=lambda i: places[i].position)
    page = ids[:limit]
    found = {run.id: run for run in session.scalars(_in_state("queued").where(Run.id.in_(page))).unique()}
    runs = [found[run_id] for run_id in page if run_id in found]
    following = encode_cursor(places[page[-1]].position) if len(ids) > limit else None
    return runs_json(session, runs, metrics=False), following


def running_runs(session: Session) -> list[dict[str, Any]]:
    """What runs now, the longest first."""
    query = _in_state("running").order_by(Run.started_at, Run.id)
    return runs_json(session, session.scalars(query).unique().all())


def num_queued(session: Session) -> int:
    """How many runs wait."""
    return session.scalar(select(func.count()).where(Run.state == "queued")) or 0
