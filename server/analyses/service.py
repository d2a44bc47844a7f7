"""The rules of analyses. Every function works inside the caller's transaction; the caller rings after it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from amp_core.analyses import check_analysis, parse_options
from amp_core.config import Recipe, parse_recipe
from amp_core.errors import AnalysisError, RecipeError
from amp_core.recipe_rules import check_device
from server.access import Principal
from server.analyses.schemas import AnalysisOfRunIn
from server.analyses.starts import start_at
from server.audit.service import record
from server.db.tables import Run
from server.errors import Conflict, Fault, Invalid
from server.experiments.plan import recipe_json
from server.experiments.submission import split_message
from server.runs.parameters import add_parameters
from server.runs.queries import find_run
from server.runs.service import check_owner

LEASE_S = 15.0  # AMPBOARD_LEASE_S by default


def add_analysis(
    session: Session, run_id: int, given: AnalysisOfRunIn, principal: Principal, lease_s: float = LEASE_S
) -> Run:
    """Queue an analysis of a run in the run's own experiment, and return it.

    It delays no verdict and changes none. Raises `NotFound`, `Forbidden` for an experiment of somebody else's, whose
    share of the devices it would take, `Conflict` for a run tracked from outside or of a script, and `Invalid`.
    """
    of = find_run(session, run_id)
    check_owner(principal, of.experiment, "add analyses to")
    device = str(of.config.get("device") or "cpu")
    if device == "outside":
        raise Conflict(f"run {run_id} was tracked from outside: its workload is not here to be executed again")
    if of.experiment.workload.is_script:
        raise Conflict(
            f"the workload of run {run_id} is a script, which owns its loop: only training runs can be made of it"
        )
    recipe = _recipe(given, of, device)
    _check_options(given, recipe, device)
    config = {
        key: value
        for key, value in of.config.items()
        if key not in ("baseline", "init_perturbation", "options", "checkpoint_dir", "keep_steps", "fork")
    }
    begins = start_at(session, given, of, lease_s)
    run = Run(
        experiment_id=of.experiment_id,
        kind=given.kind,
        role="analysis",
        recipe_name=recipe.name,
        recipe=recipe_json(recipe),
        seed=of.seed,
        steps=of.steps,
        config={**config, **begins.config, "options": given.options, "of_run": of.id},
        needs=begins.needs,
        state="queued",
        priority=given.priority,
        max_attempts=1,
        created_at=(now := datetime.now(UTC)),
        published_at=now,  # the caller rings after its commit
    )
    session.add(run)
    session.flush()
    add_parameters(session, [run.id], of.config.get("workload", {}).get("params", {}))
    record(session, principal.user_id, "run.analyse", f"run/{run.id}", of_run=of.id, kind=given.kind)
    return run


def _recipe(given: AnalysisOfRunIn, of: Run, device: str) -> Recipe:
    asked: str | dict[str, Any] = of.recipe if given.recipe is None else given.recipe
    try:
        recipe = parse_recipe(asked)
        check_device(recipe, device)
    except RecipeError as error:
        rule, remedy = split_message(str(error))
        raise Invalid([Fault(field="recipe", value=asked, rule=rule, remedy=remedy)]) from error
    return recipe


def _check_options(given: AnalysisOfRunIn, recipe: Recipe, device: str) -> None:
    try:
        parse_options(given.kind, given.options)
        check_analysis(given.kind, recipe, device)
    except AnalysisError as error:
        rule, remedy = split_message(str(error))
        field, value = ("options", given.options) if "options" in str(error) else ("kind", given.kind)
        raise Invalid([Fault(field=field, value=value, rule=rule, remedy=remedy)]) from error
