"""The run or experiment that a route is about."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from sqlalchemy.orm import Session

from server.db.tables import Experiment, Run
from server.errors import NotFound

Id = Annotated[int, Path(ge=1, lt=2**63)]


def find_run(session: Session, run_id: int) -> Run:
    """The run's row. Raises `NotFound`."""
    run = session.get(Run, run_id)
    if run is None:
        raise NotFound(f"run {run_id} is not here: GET /api/v1/runs lists those that are")
    return run


def find_experiment(session: Session, experiment_id: int) -> Experiment:
    """The experiment's row. Raises `NotFound`."""
    experiment = session.get(Experiment, experiment_id)
    if experiment is None:
        raise NotFound(f"experiment {experiment_id} is not here: GET /api/v1/experiments lists those that are")
    return experiment
