"""Exponent heat maps of an experiment: which run stands for each recipe, and one map as a fragment of a page."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.access import viewer
from server.db.tables import Event, Run
from server.errors import NotFound
from server.pages import what_ran
from server.pages.colours import Style
from server.pages.render import page
from server.records.exponents import KIND
from server.runs import queries
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False, dependencies=[Depends(viewer)])


def heat_choices(session: Session, experiment: dict[str, Any], styles: dict[str, Style]) -> list[dict[str, Any]]:
    """The first run of each recipe that recorded exponents, in the experiment's order."""
    rows = session.execute(
        select(Run.recipe_name, func.min(Run.id))
        .join(Event, Event.run_id == Run.id)
        .where(Run.experiment_id == experiment["id"], Event.kind == KIND, Run.role.in_(["baseline", "candidate"]))
        .group_by(Run.recipe_name)
    )
    firsts = {recipe: run_id for recipe, run_id in rows}  # noqa: C416 - a mypy-checked shape
    seeds = {run["id"]: run["seed"] for run in experiment["runs"]}
    return [
        {"recipe": name, "run_id": firsts[name], "seed": seeds.get(firsts[name]), "style": styles[name]}
        for recipe in experiment["recipes"]
        if (name := recipe["name"]) in firsts
    ]


@router.get("/runs/{run_id}/heat")
def show_heat(run_id: int, request: Request, database: DatabaseOf) -> Response:
    """The heat map of a run's gradient exponents alone, for pages that show it when somebody gets there."""
    with database.read() as session:
        run = queries.run_detail(session, run_id)
        heat = what_ran.gradient_exponents(session, run)
    if heat is None:
        raise NotFound(f"run {run_id} recorded no exponents of gradients")
    return page(request, "parts/exponents.html", run=run, heat=heat)
