"""An analysis that begins at a kept checkpoint: the rules of a fork, told at the fields of an analysis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from amp_core.analyses import parse_options
from amp_core.config import Recipe
from server.analyses.schemas import AnalysisOfRunIn, CheckpointIn
from server.db.tables import Run
from server.errors import Conflict, Fault, Invalid
from server.experiments.forks import PlannedFork, Wanted, find_origin, hold_origin, planned_fork
from server.experiments.plan import fork_config
from server.experiments.schemas import ForkIn
from server.queue.needs import parse_needs
from server.workers.queries import live_workers


@dataclass(frozen=True, kw_only=True)
class StartAt:
    """Where an analysis begins: what its configuration says of it, and what it needs of a worker therefore."""

    config: dict[str, Any]
    needs: str


def start_at(session: Session, given: AnalysisOfRunIn, of: Run, lease_s: float) -> StartAt:
    """At the checkpoint that is asked for; else where the run itself began: at its seed, or at its fork's checkpoint.

    Raises `Invalid`.
    """
    asked = given.from_checkpoint
    if asked is None:
        own = of.config.get("fork")
        if own and own.get("elsewhere"):
            raise Conflict(f"run {of.id} was imported, and the checkpoint that it began at was not")
        return StartAt(config={"fork": own} if own else {}, needs=of.needs)
    options = parse_options(given.kind, given.options)
    start = getattr(options, "start", None)
    if start is None:
        rule = f"analysis kind={given.kind!r} trains no start, and has no checkpoint to begin at"
        raise Invalid([Fault(field="from_checkpoint", value=asked.model_dump(), rule=rule, remedy="leave it out")])
    fork = _planned(session, asked, of, start + getattr(options, "horizon", 1), lease_s)
    return StartAt(config=fork_config(fork), needs=replace(parse_needs(of.needs), worker=fork.worker).spell())


def _planned(session: Session, asked: CheckpointIn, of: Run, num_steps: int, lease_s: float) -> PlannedFork:
    faults: list[Fault] = []

    def tell(field: str, value: Any, rule: str, remedy: str) -> None:
        named = field.replace("fork.horizon", "options").replace("fork.", "from_checkpoint.")
        faults.append(Fault(field=named, value=value, rule=rule, remedy=remedy))

    plan, workload = of.experiment.plan, of.experiment.workload
    recipes = [msgspec.convert(recipe, Recipe) for recipe in plan["recipes"]]
    wanted = Wanted(
        workload=workload.name,
        source_hash=workload.source_hash,
        params=plan.get("params") or {},
        baseline=next((recipe for recipe in recipes if recipe.name == plan["baseline"]), None),
        device=of.device.partition(":")[0],
        ranks=1,
        strategy="ddp",
        may_schedule=bool(workload.description.get("may_schedule", True)),
    )
    live = frozenset(worker.name for worker in live_workers(session, lease_s))
    given = ForkIn(run=asked.run, step=asked.step, horizon=num_steps)
    fork = planned_fork(given, find_origin(session, asked.run, live), wanted, tell)
    if fork is None:
        raise Invalid(faults)
    if not hold_origin(session, fork):
        raise Conflict(f"the checkpoint of run {fork.run} was dropped this moment: begin at another one")
    return fork
