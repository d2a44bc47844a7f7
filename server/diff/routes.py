"""Runs beside each other over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from server.access import viewer
from server.diff.queries import difference_of, find_runs, ids_of
from server.diff.schemas import DifferenceOut
from server.errors import Fault, Invalid
from server.state import DatabaseOf

router = APIRouter(prefix="/api/v1", tags=["comparisons"], dependencies=[Depends(viewer)])
Ids = Annotated[str, Query(max_length=2000, description="Numbers with commas between them.")]


@router.get("/compare")
def compare_runs(database: DatabaseOf, runs: Ids = "", experiments: Ids = "") -> DifferenceOut:
    """Any runs, and all runs of any experiments: configuration, environment, source line by line, numbers by module."""
    run_ids, experiment_ids = ids_of("runs", runs), ids_of("experiments", experiments)
    if not run_ids and not experiment_ids:
        rule, remedy = "nothing is named", "name runs or experiments, such as runs=1,2"
        raise Invalid([Fault(field="runs", value="", rule=rule, remedy=remedy)])
    with database.read() as session:
        found = find_runs(session, run_ids, experiment_ids)
        return DifferenceOut.model_validate(difference_of(session, found))
