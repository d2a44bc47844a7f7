"""Reads kept checkpoints: where they lie, how large they are, and which forks still need them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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


def open_forks(session: Session, run_ids: Collection[int]) -> dict[int, list[int]]:
    """By run: the experiments with runs that have not ended and that begin at a checkpoint of it."""
    found: dict[int, list[int]] = {}
    for run_id, experiment_id in sorted(
        {(run_id, experiment_id) for run_id, experiment_id, _ in _open(session, run_ids)}
    ):
        found.setdefault(run_id, []).append(experiment_id)
    return found


def hold_kept(session: Session, run_id: int, name: str) -> bool:
    """Lock a run until the transaction ends, and say whether its checkpoint of this name is still kept.

    Whoever drops or deletes it waits for that lock, and then sees the runs that begin there.
    """
    run = session.scalar(select(Run.id).where(Run.id == run_id).with_for_update(read=True, key_share=True))
    named = (Checkpoint.run_id == run_id, Checkpoint.name == name)
    return run is not None and session.scalar(select(Checkpoint.id).where(*named)) is not None


def names_needed(session: Session, run_ids: Collection[int]) -> dict[int, set[str]]:
    """By run: the files of it at which runs begin that have not ended."""
    found: dict[int, set[str]] = {}
    for run_id, _, name in _open(session, run_ids):
        found.setdefault(run_id, set()).add(name)
    return found


def _open(session: Session, run_ids: Collection[int]) -> set[tuple[int, int, str]]:
    """Of forks that have not ended: the run they begin at, their experiment, and the checkpoint's name."""
    wanted = set(run_ids)
    of_plan = Experiment.plan["fork"]["run"].as_integer()
    planned = select(of_plan, Experiment.id, Experiment.plan["fork"]["name"].as_string()).where(
        of_plan.in_(wanted),
        Experiment.id.in_(select(Run.experiment_id).where(Run.state.in_(OPEN), Run.role != "analysis")),
    )
    of_run = Run.config["fork"]["run"].as_integer()  # analyses are no part of the plan
    analysed = select(of_run, Run.experiment_id, Run.config["fork"]["name"].as_string()).where(
        of_run.in_(wanted), Run.state.in_(OPEN), Run.role == "analysis"
    )
    return {
        (run_id, experiment_id, name)
        for query in (planned, analysed)
        for run_id, experiment_id, name in session.execute(query)
    }
