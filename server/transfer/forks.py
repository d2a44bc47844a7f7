"""What an export says of forks: checked before anything is added, and given the numbers that their origins got here.

A fork whose origin is not in the file keeps its number and says ``elsewhere``: that number is one of another database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy.orm import Session

from amp_core.config import Fork
from server.db.errors import StoreError
from server.db.tables import Experiment, Run
from server.experiments.forks import PlannedFork
from server.transfer.files import Source

Numbers = Mapping[int, int]


def check_forks(source: Source) -> None:
    """Raise `StoreError` at the first fork of an experiment's plan or a run's configuration that cannot be one."""
    for table, column, kind in (("experiments", "plan", PlannedFork), ("runs", "config", Fork)):
        for row in source.rows(table):
            fork = row[column].get("fork") if isinstance(row.get(column), dict) else None
            if fork is None:
                continue
            try:
                made: Any = msgspec.convert(fork, kind)
                whole = made.run > 0 and made.step >= 0 and made.steps >= made.step
            except msgspec.ValidationError as error:
                raise StoreError(f"{table[:-1]} {row['id']}: its {column} has a malformed fork: {error}") from None
            if not whole:
                raise StoreError(f"{table[:-1]} {row['id']}: its {column} forks from no step of a run: {fork}")


def renumber_forks(session: Session, experiments: Numbers, runs: Numbers) -> None:
    """Point the forks of what was imported at the runs of the same file; ``experiments`` and ``runs`` by old number."""
    for experiment_id in experiments.values():
        experiment = session.get_one(Experiment, experiment_id)
        if experiment.plan.get("fork"):
            experiment.plan = {**experiment.plan, "fork": _here(experiment.plan["fork"], experiments, runs)}
    for run_id in runs.values():
        run = session.get_one(Run, run_id)
        if run.config.get("fork"):
            run.config = {**run.config, "fork": _here(run.config["fork"], experiments, runs)}


def _here(fork: dict[str, Any], experiments: Numbers, runs: Numbers) -> dict[str, Any]:
    if fork["run"] not in runs or fork.get("elsewhere"):
        return {**fork, "elsewhere": True}
    renumbered = {**fork, "run": runs[fork["run"]]}
    if "experiment_id" in fork:
        renumbered["experiment_id"] = experiments.get(fork["experiment_id"], fork["experiment_id"])
    return renumbered
