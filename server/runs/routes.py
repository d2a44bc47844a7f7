"""Runs and the queue over REST."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Response, status

from server.access import Principal, submitter, viewer
from server.broker.publish import ring
from server.paging import MAX_LIMIT
from server.runs import control, delete, groups, queries, service, table
from server.runs.group_keys import GroupBy
from server.runs.schemas import GroupList, PriorityIn, QueueOut, RunDetail, RunList
from server.state import DatabaseOf, SettingsOf
from server.workers.queries import live_workers

router = APIRouter(prefix="/api/v1", tags=["runs"])

SEARCH = "Words that must all hold, such as `recipe:16-mixed eval/accuracy>0.95 created:<7d`; see docs/search.md."
SORT = (
    "created, a column (experiment, recipe, state, seed, step, owner, workload, started, ended), primary, params.NAME "
    "or a metric such as eval/accuracy or eval/loss.min; with - before it the newest or highest come first."
)
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str | None, Query(max_length=400)]
State = Literal["queued", "running", "paused", "completed", "failed", "cancelled"]


@router.get("/runs", dependencies=[Depends(viewer)], response_model=RunList)
def list_runs(
    database: DatabaseOf,
    q: Annotated[str | None, Query(max_length=400, description=SEARCH)] = None,
    experiment_id: int | None = None,
    state: State | None = None,
    kind: Literal["train", "benchmark", "sensitivity", "stress", "layers", "batch-size"] | None = None,
    role: Literal["baseline", "candidate", "control", "benchmark", "analysis"] | None = None,
    recipe: Annotated[str | None, Query(max_length=80)] = None,
    workload: Annotated[str | None, Query(max_length=80)] = None,
    archived: queries.Archived = "no",
    sort: Annotated[str, Query(max_length=220, description=SORT)] = "-created",
    cursor: Annotated[str | None, Query(max_length=800)] = None,
    limit: Limit = 50,
) -> Response:
    """Runs of the whole team, each with the summaries of its series."""
    chosen = queries.RunFilter(
        experiment_id=experiment_id,
        state=state,
        kind=kind,
        role=role,
        recipe=recipe,
        workload=workload,
        q=q,
        archived=archived,
    )
    with database.read() as session:
        items, following = table.list_runs(session, chosen, sort=sort, cursor=cursor, limit=limit)
    # Encoded as it is: fifty runs of twenty series are ten thousand values that need no second look.
    return Response(msgspec.json.encode({"items": items, "next_cursor": following}), media_type="application/json")


@router.get("/runs/groups", dependencies=[Depends(viewer)])
def group_runs(
    database: DatabaseOf,
    by: GroupBy = "recipe",
    metrics: Annotated[
        str, Query(max_length=1000, description="Names of series with commas; primary is each run's own.")
    ] = "primary",
    q: Annotated[str | None, Query(max_length=400, description=SEARCH)] = None,
    archived: queries.Archived = "no",
) -> GroupList:
    """Runs in groups: mean, sd and range of metrics, the difference from the baseline, what is not finite."""
    names = list(dict.fromkeys(name for name in metrics.split(",") if name))[:20]
    with database.read() as session:
        found = groups.groups_of(session, queries.RunFilter(q=q, archived=archived), by, names)
    return GroupList.model_validate({"items": [asdict(group) for group in found]})


@router.get("/runs/{run_id}", dependencies=[Depends(viewer)])
def show_run(run_id: int, database: DatabaseOf) -> RunDetail:
    """One run with its configuration, environment, attempts and series summaries."""
    with database.read() as session:
        return RunDetail.model_validate(queries.run_detail(session, run_id))


@router.post("/runs/{run_id}/cancel")
def cancel_run(
    run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf
) -> RunDetail:  # fmt: skip
    """Cancel a run: a queued one ends at once, a running one is stopped by its worker within a heartbeat."""
    with database.write() as session:
        service.cancel(session, run_id, principal)
        return RunDetail.model_validate(queries.run_detail(session, run_id))


@router.post("/runs/{run_id}/pause")
def pause_run(run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf) -> RunDetail:
    """Pause a run: a queued one at once, a running one after a checkpoint. It waits, on no device, until resumed."""
    with database.write() as session:
        control.pause(session, run_id, principal)
        return RunDetail.model_validate(queries.run_detail(session, run_id))


@router.post("/runs/{run_id}/resume")
def resume_run(
    run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf, settings: SettingsOf
) -> RunDetail:
    """Queue a paused run again: it goes on from its checkpoint, as a new attempt."""
    with database.write() as session:
        control.resume(session, run_id, principal)
        detail = RunDetail.model_validate(queries.run_detail(session, run_id))
    ring(settings)
    return detail


@router.post("/runs/{run_id}/retry")
def retry_one_run(
    run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf, settings: SettingsOf
) -> RunDetail:
    """Queue a failed or cancelled run again, as its next attempt; its experiment is judged anew."""
    with database.write() as session:
        control.retry(session, run_id, principal)
        detail = RunDetail.model_validate(queries.run_detail(session, run_id))
    ring(settings)
    return detail


@router.post("/runs/{run_id}/priority")
def change_priority_of_run(
    run_id: int, body: PriorityIn, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf
) -> RunDetail:
    """Change the priority of a run that has not ended."""
    with database.write() as session:
        control.set_priority(session, run_id, body.priority, principal)
        return RunDetail.model_validate(queries.run_detail(session, run_id))


@router.delete("/runs/{run_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_run(run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf) -> None:
    """Delete a run that has ended, with its points, events, log and artifacts."""
    with database.write() as session:
        delete.delete_run(session, run_id, principal)


@router.get("/queue", dependencies=[Depends(viewer)])
def show_queue(database: DatabaseOf, settings: SettingsOf, cursor: Cursor = None, limit: Limit = 100) -> QueueOut:
    """The queue in the order in which runs will be taken, and what runs now."""
    with database.read() as session:
        items, following = queries.queued_runs(session, cursor=cursor, limit=limit)
        return QueueOut.model_validate(
            {
                "items": items,
                "running": queries.running_runs(session),
                "num_queued": queries.num_queued(session),
                "slots": sum(worker.slots for worker in live_workers(session, settings.lease_s)),
                "next_cursor": following,
            }
        )
