"""What the buttons of runs, experiments and workers do: pause, resume, another priority, drain."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form
from fastapi.responses import RedirectResponse, Response

from server.access import Principal, admin, submitter
from server.broker.publish import ring
from server.experiments.queries import find_experiment
from server.runs import control
from server.state import DatabaseOf, SettingsOf
from server.workers.service import set_draining

router = APIRouter(include_in_schema=False)
Submitter = Annotated[Principal, Depends(submitter)]
Admin = Annotated[Principal, Depends(admin)]
Priority = Annotated[int, Form(ge=-100, le=100)]


def _to(address: str) -> Response:
    return RedirectResponse(address, status_code=303)


@router.post("/runs/{run_id}/pause")
def pause_run(run_id: int, principal: Submitter, database: DatabaseOf) -> Response:
    """Pause the run, and show it."""
    with database.write() as session:
        control.pause(session, run_id, principal)
    return _to(f"/runs/{run_id}")


@router.post("/runs/{run_id}/resume")
def resume_run(run_id: int, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Queue the run again, and show it."""
    with database.write() as session:
        control.resume(session, run_id, principal)
    ring(settings)
    return _to(f"/runs/{run_id}")


@router.post("/runs/{run_id}/priority")
def change_priority(run_id: int, principal: Submitter, database: DatabaseOf, priority: Priority) -> Response:
    """Give the run another priority, and show it."""
    with database.write() as session:
        control.set_priority(session, run_id, priority, principal)
    return _to(f"/runs/{run_id}")


@router.post("/experiments/{experiment_id}/pause")
def pause_experiment(experiment_id: int, principal: Submitter, database: DatabaseOf) -> Response:
    """Pause the open runs, and show the experiment."""
    with database.write() as session:
        control.pause_all(session, find_experiment(session, experiment_id), principal)
    return _to(f"/experiments/{experiment_id}")


@router.post("/experiments/{experiment_id}/resume")
def resume_experiment(experiment_id: int, principal: Submitter, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Queue the paused runs again, and show the experiment."""
    with database.write() as session:
        num_runs = control.resume_all(session, find_experiment(session, experiment_id), principal)
    ring(settings, num_runs)
    return _to(f"/experiments/{experiment_id}")


@router.post("/experiments/{experiment_id}/priority")
def change_priority_of_all(
    experiment_id: int, principal: Submitter, database: DatabaseOf, priority: Priority
) -> Response:
    """Give the open runs another priority, and show the experiment."""
    with database.write() as session:
        control.set_priority_of_all(session, find_experiment(session, experiment_id), priority, principal)
    return _to(f"/experiments/{experiment_id}")


@router.post("/workers/{worker_id}/drain")
def drain_worker(worker_id: int, principal: Admin, database: DatabaseOf) -> Response:
    """Drain the worker, and show all."""
    with database.write() as session:
        set_draining(session, worker_id, True, principal)
    return _to("/workers")


@router.post("/workers/{worker_id}/undrain")
def undrain_worker(worker_id: int, principal: Admin, database: DatabaseOf, settings: SettingsOf) -> Response:
    """Let the worker take runs again, and show all."""
    with database.write() as session:
        set_draining(session, worker_id, False, principal)
    ring(settings)
    return _to("/workers")
