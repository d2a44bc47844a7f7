"""Forks on pages: where the runs began, what a run keeps, and the form that judges other recipes from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session

from server.access import Principal, submitter
from server.checkpoints.queries import kept_of, open_forks
from server.checkpoints.service import drop_kept
from server.db.tables import Run
from server.pages.formats import size
from server.pages.submission_form import copied
from server.state import DatabaseOf

router = APIRouter(include_in_schema=False)
SHARE_OF_RUN = 10  # the horizon that the form proposes is this part of the forked run


@router.post("/runs/{run_id}/drop-checkpoints")
def drop(run_id: int, principal: Annotated[Principal, Depends(submitter)], database: DatabaseOf) -> Response:
    """Drop what the run keeps, and show it."""
    with database.write() as session:
        drop_kept(session, run_id, principal)
    return RedirectResponse(f"/runs/{run_id}", status_code=303)


def kept_panel(session: Session, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the run page shows of kept checkpoints; None without any."""
    kept = kept_of(session, run["id"])
    if not kept:
        return None
    can_fork = run["kind"] == "train" and run["state"] in ("running", "paused", "completed")
    return {
        "rows": [
            {
                "step": one.step,
                "size": size(one.num_bytes),
                "place": "shared by all workers" if one.is_shared else f"on worker {one.worker_name}",
                "fork": f"/experiments/new?fork={run['id']}@{one.step}" if can_fork else None,
            }
            for one in kept
        ],
        "size": size(sum(one.num_bytes for one in kept)),
        "needed_by": open_forks(session, [run["id"]]).get(run["id"], []),
        "can_drop": run["state"] in ("completed", "failed", "cancelled"),
    }


def fork_form(workload: Mapping[str, Any], run: Run, step: str) -> dict[str, str]:
    """The form of a new experiment that begins at a checkpoint of a run; ``step`` may be ``last``."""
    asked = ("params", "primary", "device", "priority", "tags")  # recipes, seeds and what else is measured begin anew
    earlier = run.experiment.plan.get("submission", {})
    submission = {name: earlier[name] for name in asked if name in earlier}
    form = copied(workload, submission | {"name": f"{run.experiment.name}: from step {step} of run {run.id}"[:200]})
    horizon = max(1, run.steps // SHARE_OF_RUN)
    if step.isdigit() and run.steps > int(step):
        horizon = min(horizon, run.steps - int(step))
    return form | {"fork.run": str(run.id), "fork.step": step, "fork.horizon": str(horizon)}
