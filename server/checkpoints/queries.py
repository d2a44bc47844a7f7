"""Reads kept checkpoints: where they lie, how large they are, and which forks still need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.db.tables import Checkpoint, Experiment, Run
from server.queue.finish import OPEN


@dataclass(frozen=True, kw_only=True)
class Space:
    """How many kept checkpoints there are, and the bytes of their files."""

    num: int
    num_bytes: int


def kept_of(session: Session, run_id: int) -> Sequence[Checkpoint]:
    """The kept checkpoints of a run by step."""
    return session.scalars(select(Checkpoint).where(Checkpoint.run_id == run_id).order_by(Checkpoint.step)).all()


def space_of(session: Session, experiment_id: int | None = None) -> Space:
    """Of one experiment's runs, or of all."""
    query = select(func.count(Checkpoint.id), func.coalesce(func.sum(Checkpoint.num_bytes), 0))
    if experiment_id is not None:
        query = query.join(Run, Run.id == Checkpoint.run_id).where(Run.experiment_id == experiment_id)
    num, num_bytes = session.execute(query).one()
    return Space(num=num, num_bytes=int(num_bytes))


def open_forks(session: Session, run_ids: Sequence[int]) -> dict[int, list[int]]:
    """By run: the experiments with runs that have not ended and that begin at a checkpoint of it."""
    wanted = set(run_ids)
    of_plan = Experiment.plan["fork"]["run"].as_integer()
    planned = select(of_plan, Experiment.id).where(
        of_plan.in_(wanted),
        Experiment.id.in_(select(Run.experiment_id).where(Run.state.in_(OPEN), Run.role != "analysis")),
    )
    of_run = Run.config["fork"]["run"].as_integer()  # analyses are no part of the plan
    analysed = select(of_run, Run.experiment_id).where(of_run.in_(wanted), Run.state.in_(OPEN), Run.role == "analysis")
    rows = {
        (run_id, experiment_id) for query in (planned, analysed) for run_id, experiment_id in session.execute(query)
    }
    found: dict[int, list[int]] = {}
    for run_id, experiment_id in sorted(rows):
        found.setdefault(run_id, []).append(experiment_id)
    return found
