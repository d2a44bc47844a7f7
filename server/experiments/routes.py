"""Experiments over REST."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Header, Query, Response, status

from server.access import Principal, submitter, viewer
from server.broker.publish import ring
from server.db.engine import Database
from server.experiments import queries, service, sweeps
from server.experiments.estimate import estimate
from server.experiments.schemas import EstimateOut, ExperimentDetail, ExperimentIn, ExperimentList
from server.paging import MAX_LIMIT
from server.runs import control, delete
from server.runs.queries import Archived, num_queued
from server.runs.routes import SEARCH
from server.runs.schemas import PriorityIn
from server.settings import Settings
from server.state import DatabaseOf, SettingsOf
from server.workers.queries import live_workers

router = APIRouter(prefix="/api/v1", tags=["experiments"])

Submitter = Annotated[Principal, Depends(submitter)]
Key = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, description="Makes a repeated submission harmless."),
]


@router.post("/experiments", status_code=status.HTTP_201_CREATED)
def submit_experiment(
    body: ExperimentIn,
    response: Response,
    principal: Submitter,
    database: DatabaseOf,
    settings: SettingsOf,
    idempotency_key: Key = None,
) -> ExperimentDetail:
    """Submit an experiment: a workload under several recipes and seeds, compared with a baseline."""
    return submit(database, settings, body, principal, response, idempotency_key)


def submit(
    database: Database,
    settings: Settings,
    body: ExperimentIn,
    principal: Principal,
    response: Response,
    key: str | None = None,
) -> ExperimentDetail:
    """Queue, commit, ring; the answer tells the new experiment's place."""
    with database.write() as session:
        experiment, num_runs = service.submit(session, settings, body, principal, key)
        detail = ExperimentDetail.model_validate(queries.experiment_detail(session, experiment.id))
    if num_runs:
        ring(settings, num_runs)
    response.headers["Location"] = detail.links.self
    return detail


@router.post("/sweeps", status_code=status.HTTP_201_CREATED)
def submit_sweep(
    body: sweeps.SweepIn, principal: Submitter, database: DatabaseOf, settings: SettingsOf
) -> sweeps.SweepOut:
    """Submit one experiment per set of parameter values, from a grid or drawn at random, all with one tag; or none."""
    with database.write() as session:
        made = sweeps.submit(session, settings, body, principal)
    ring(settings, made.num_runs)
    return made


@router.post("/experiments/estimate", dependencies=[Depends(submitter)])
def estimate_experiment(body: ExperimentIn, database: DatabaseOf, settings: SettingsOf) -> EstimateOut:
    """Check a submission without queueing it: how many runs, and about how long, from the workload's history."""
    with database.read() as session:
        plan, _ = service.make_plan(session, settings, body)
        slots = sum(worker.slots for worker in live_workers(session, settings.lease_s))
        expected = estimate(session, plan, slots)
        return EstimateOut.model_validate(
            {
                "runs": expected.runs,
                "expected_minutes": expected.expected_minutes,
                "based_on_runs": expected.based_on_runs,
                "slots": slots,
                "queued_ahead": num_queued(session),
                "control": plan.control,
                "device": plan.device,
            }
        )


@router.get("/experiments", dependencies=[Depends(viewer)])
def list_experiments(
    database: DatabaseOf,
    q: Annotated[str | None, Query(max_length=400, description=SEARCH)] = None,
    state: Literal["queued", "running", "ended", "cancelled"] | None = None,
    workload: Annotated[str | None, Query(max_length=80)] = None,
    owner: Annotated[str | None, Query(max_length=80)] = None,
    project: Annotated[str | None, Query(max_length=80)] = None,
    archived: Archived = "no",
    sort: queries.Sort = "-created_at",
    cursor: Annotated[str | None, Query(max_length=800)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = 50,
) -> ExperimentList:
    """Experiments of the whole team."""
    chosen = queries.ExperimentFilter(
        q=q, state=state, workload=workload, owner=owner, project=project, archived=archived
    )
    with database.read() as session:
        items, following = queries.list_experiments(session, chosen, sort=sort, cursor=cursor, limit=limit)
    return ExperimentList.model_validate({"items": items, "next_cursor": following})


@router.get("/experiments/{experiment_id}", dependencies=[Depends(viewer)])
def show_experiment(experiment_id: int, database: DatabaseOf) -> ExperimentDetail:
    """One experiment with its runs."""
    return _detail(database, experiment_id)


def _detail(database: Database, experiment_id: int) -> ExperimentDetail:
    with database.read() as session:
        return ExperimentDetail.model_validate(queries.experiment_detail(session, experiment_id))


@router.delete("/experiments/{experiment_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_experiment(experiment_id: int, principal: Submitter, database: DatabaseOf) -> None:
    """Delete an experiment that has ended, with its runs and everything they left."""
    with database.write() as session:
        delete.delete_experiment(session, experiment_id, principal)


@router.post("/experiments/{experiment_id}/cancel")
def cancel_experiment(experiment_id: int, principal: Submitter, database: DatabaseOf) -> ExperimentDetail:
    """Cancel every run that has not ended: queued ones at once, running ones by their worker within a heartbeat."""
    with database.write() as session:
        service.cancel(session, experiment_id, principal)
    return _detail(database, experiment_id)


@router.post("/experiments/{experiment_id}/pause")
def pause_experiment(experiment_id: int, principal: Submitter, database: DatabaseOf) -> ExperimentDetail:
    """Pause every run that has not ended: queued ones at once, running ones after a checkpoint."""
    with database.write() as session:
        control.pause_all(session, queries.find_experiment(session, experiment_id), principal)
    return _detail(database, experiment_id)


@router.post("/experiments/{experiment_id}/resume")
def resume_experiment(
    experiment_id: int, principal: Submitter, database: DatabaseOf, settings: SettingsOf
) -> ExperimentDetail:
    """Queue its paused runs again: each goes on from its checkpoint, as a new attempt."""
    with database.write() as session:
        num_runs = control.resume_all(session, queries.find_experiment(session, experiment_id), principal)
    ring(settings, num_runs)
    return _detail(database, experiment_id)


@router.post("/experiments/{experiment_id}/priority")
def change_priority(
    experiment_id: int, body: PriorityIn, principal: Submitter, database: DatabaseOf
) -> ExperimentDetail:
    """Change the priority of every run that has not ended."""
    with database.write() as session:
        experiment = queries.find_experiment(session, experiment_id)
        control.set_priority_of_all(session, experiment, body.priority, principal)
    return _detail(database, experiment_id)


@router.post("/experiments/{experiment_id}/retry")
def retry_experiment(
    experiment_id: int, principal: Submitter, database: DatabaseOf, settings: SettingsOf
) -> ExperimentDetail:  # fmt: skip
    """Queue its failed and cancelled runs again; it is judged once all have ended."""
    with database.write() as session:
        num_runs = service.retry(session, experiment_id, principal)
    ring(settings, num_runs)
    return _detail(database, experiment_id)


@router.post("/experiments/{experiment_id}/clone", status_code=status.HTTP_201_CREATED)
def clone_experiment(
    experiment_id: int,
    response: Response,
    principal: Submitter,
    database: DatabaseOf,
    settings: SettingsOf,
    changes: Annotated[dict[str, Any] | None, Body(description="Fields of a submission to change.")] = None,
) -> ExperimentDetail:
    """Submit an experiment again, by whomever it was, with some fields changed."""
    with database.read() as session:
        body = service.copied(session, experiment_id, changes or {})
    return submit(database, settings, body, principal, response)


@router.post("/runs/{run_id}/clone", status_code=status.HTTP_201_CREATED, tags=["runs"])
def clone_run(
    run_id: int,
    response: Response,
    principal: Submitter,
    database: DatabaseOf,
    settings: SettingsOf,
    changes: Annotated[dict[str, Any] | None, Body(description="Fields of a submission to change.")] = None,
) -> ExperimentDetail:
    """Submit one run again, by whomever it was: its recipe beside the baseline, its seed, with some fields changed."""
    with database.read() as session:
        body = service.copied_run(session, run_id, changes or {})
    return submit(database, settings, body, principal, response)
