"""Reads what is compared: runs by number or of whole experiments, and what each recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload, selectinload, undefer

from server.db.tables import Event, Experiment, Run, Workload
from server.diff.lines import differences
from server.diff.rows import Row, rows_of
from server.errors import Fault, Invalid, NotFound
from server.runs.queries import runs_json

MAX_RUNS = 40
COMPARED_ROLES = ("baseline", "candidate", "tracked")  # of a whole experiment: what its page draws
_OWN = ("run_id", "attempt", "scratch_dir")  # of a configuration: differs in every run and means nothing
_TIMINGS = ("setup_s",)  # beside the environment: how long it took


def ids_of(field: str, text: str) -> list[int]:
    """Numbers separated by commas or spaces, without repeats. Raises `Invalid`."""
    words = text.replace(",", " ").split()
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and 0 < int(word) < 2**63)]
    if wrong:
        rule, remedy = f"{wrong[0][:40]!r} is no number of a run", "write numbers such as 1,2,3"
        raise Invalid([Fault(field=field, value=text[:200], rule=rule, remedy=remedy)])
    return list(dict.fromkeys(int(word) for word in words))


def find_runs(session: Session, run_ids: Sequence[int], experiment_ids: Sequence[int] = ()) -> list[Run]:
    """The runs by number in the order given, then those of the experiments. Raises `NotFound`, `Invalid`."""
    loaded = (joinedload(Run.experiment).joinedload(Experiment.workload), selectinload(Run.worker))
    named = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(run_ids)).options(*loaded))}
    missing = [run_id for run_id in run_ids if run_id not in named]
    if missing:
        raise NotFound(f"run {missing[0]} is not here: GET /api/v1/runs lists those that are")
    for experiment_id in experiment_ids:
        if session.get(Experiment, experiment_id) is None:
            raise NotFound(f"experiment {experiment_id} is not here: GET /api/v1/experiments lists those that are")
    of_experiments = session.scalars(
        select(Run)
        .where(Run.experiment_id.in_(experiment_ids), Run.role.in_(COMPARED_ROLES))
        .options(*loaded)
        .order_by(Run.experiment_id, Run.id)
    )
    runs = {run.id: run for run in [*(named[run_id] for run_id in run_ids), *of_experiments]}
    if len(runs) > MAX_RUNS:
        rule, remedy = f"{len(runs)} runs are too many beside each other", f"name at most {MAX_RUNS}"
        raise Invalid([Fault(field="runs", value=len(runs), rule=rule, remedy=remedy)])
    return list(runs.values())


def difference_of(session: Session, runs: Sequence[Run]) -> dict[str, Any]:
    """Everything recorded of the runs, as rows with a value for each run, and whether they differ in it."""
    return {
        "runs": [
            {**each, "workload": run.experiment.workload.name, "primary": run.experiment.plan["primary"]}
            for each, run in zip(runs_json(session, runs), runs, strict=True)
        ],
        "config": [_row_json(row) for row in rows_of([configuration(run) for run in runs])],
        "environment": [_row_json(row) for row in rows_of([_environment(run) for run in runs])],
        "sources": sources_of(session, runs),
        "numerics": numerics_of(session, runs),
    }


def configuration(run: Run) -> dict[str, Any]:
    """Recipe, seed, steps and the run's configuration."""
    config = {name: value for name, value in run.config.items() if name not in _OWN}
    recipe = {name: value for name, value in run.recipe.items() if name != "name"}
    return {"recipe": recipe, "seed": run.seed, "steps": run.steps, **config}


def _environment(run: Run) -> dict[str, Any] | None:
    """What the run recorded of the place it ran in; None before it has."""
    return {name: value for name, value in (run.environment or {}).items() if name not in _TIMINGS} or None


def _row_json(row: Row) -> dict[str, Any]:
    return {"name": row.name, "values": list(row.values), "differs": row.differs}


def sources_of(session: Session, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The versions of the runs' workloads; each later version of a workload line by line against its first one."""
    ids = dict.fromkeys(run.experiment.workload_id for run in runs)
    query = select(Workload).where(Workload.id.in_(ids)).options(undefer(Workload.source))
    versions = {version.id: version for version in session.scalars(query)}
    first: dict[str, Workload] = {}
    found = []
    for workload_id in ids:
        version = versions[workload_id]
        base = first.setdefault(version.name, version)
        found.append(
            {
                "workload": version.name,
                "source_hash": version.source_hash,
                "path": version.path,
                "is_stored": version.source is not None,
                "run_ids": [run.id for run in runs if run.experiment.workload_id == workload_id],
                "against": base.source_hash if base is not version else None,
                **_lines(base, version),
            }
        )
    return found


def _lines(base: Workload, version: Workload) -> dict[str, Any]:
    """``lines``: what differs from the base, None where it cannot be told and ``note`` says why."""
    if base is version:
        return {"lines": None, "note": ""}
    if base.source is None or version.source is None:
        return {"lines": None, "note": "the text of a version was not stored: its file was gone when sources came in"}
    try:
        return {"lines": [asdict(line) for line in differences(base.source, version.source)], "note": ""}
    except ValueError as error:
        return {"lines": None, "note": str(error)}


def numerics_of(session: Session, runs: Sequence[Run]) -> dict[str, Any]:
    """The newest gradient statistics of each run by module: max|g|, share lost to underflow, share of exact zeros."""
    samples = [_newest_numerics(session, run.id) for run in runs]
    by_module = [{item["module"]: item for item in sample.payload["modules"]} if sample else {} for sample in samples]
    modules = dict.fromkeys(name for each in by_module for name in each)
    fields = ("max_abs", "underflow_fraction", "zero_fraction")
    return {
        "steps": [sample.step if sample else None for sample in samples],
        "modules": [
            {
                "module": name,
                "runs": [{key: each[name][key] for key in fields} if name in each else None for each in by_module],
            }
            for name in modules
        ],
    }


def _newest_numerics(session: Session, run_id: int) -> Event | None:
    query = select(Event).where(Event.run_id == run_id, Event.kind == "numerics")
    return session.scalars(query.order_by(Event.attempt.desc(), Event.sequence.desc()).limit(1)).first()
