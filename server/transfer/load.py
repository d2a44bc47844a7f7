"""An export into the store: new rows with new ids, everything else as it was."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import DateTime, LargeBinary, inspect, select
from sqlalchemy.orm import Session

from server.db.engine import Database
from server.db.errors import StoreError
from server.db.tables import Artifact, Attempt, Base, Event, Experiment, Log, Run, User, UtcDateTime, Workload
from server.metrics.codec import Points, concatenate
from server.metrics.write import store_arrivals
from server.projects.service import project_named
from server.runs.parameters import add_parameters
from server.transfer.files import Source
from server.transfer.forks import check_forks, renumber_forks
from server.transfer.tables import PointsOf, Row

_ROWS_AT_ONCE = 200
_OF_RUNS: dict[str, type[Base]] = {"attempts": Attempt, "events": Event, "logs": Log, "artifacts": Artifact}


def load(database: Database, source: Source) -> tuple[int, int]:
    """Add everything of an export; return how many experiments and runs that were.

    Runs that had not ended where they came from are cancelled here. Owners are found by name; where there is none of
    that name, the oldest admin owns the experiment. Raises `StoreError` without any account, and for a malformed fork.
    """
    check_forks(source)
    experiments: dict[int, int] = {}
    runs: dict[int, int] = {}
    for row in source.rows("experiments"):
        with database.write() as session:
            experiments[row["id"]] = _add_experiment(session, row)
    for row in source.rows("runs"):
        with database.write() as session:
            runs[row["id"]] = _add_run(session, row, experiments[row["experiment_id"]])
    with database.write() as session:
        renumber_forks(session, experiments, runs)
    for table, kind in _OF_RUNS.items():
        for rows in _batches(source.rows(table)):
            with database.write() as session:
                session.add_all(
                    _row(kind, {**row, "run_id": runs[row["run_id"]]}, without=_new_ids(kind)) for row in rows
                )
    for (run_id, attempt), parts in groupby(source.points(), key=lambda part: (part.run_id, part.attempt)):
        _add_points(database, runs[run_id], attempt, parts)
    return len(experiments), len(runs)


def _add_experiment(session: Session, row: Row) -> int:
    owner = session.scalar(select(User).where(User.name == row["owner"])) or session.scalar(
        select(User).where(User.role == "admin").order_by(User.id).limit(1)
    )
    if owner is None:
        raise StoreError(
            "nobody has an account here who could own what is imported: ampboard user add NAME --role admin"
        )
    given = row["workload"]
    known = select(Workload).where(Workload.name == given["name"], Workload.source_hash == given["source_hash"])
    workload: Workload | None = session.scalar(known)
    if workload is None:
        workload = _row(Workload, given, without={"id"})
        session.add(workload)
    project = project_named(session, row["project"])
    experiment: Experiment = _row(Experiment, row, without={"id", "project", "owner", "workload"})
    experiment.owner_id, experiment.project_id = owner.id, project.id
    experiment.workload = workload
    if experiment.state not in ("ended", "cancelled"):
        experiment.state, experiment.ended_at = "cancelled", experiment.ended_at or experiment.created_at
    session.add(experiment)
    session.flush()
    return experiment.id


def _add_run(session: Session, row: Row, experiment_id: int) -> int:
    run: Run = _row(Run, {**row, "experiment_id": experiment_id}, without={"id"})
    if run.state in ("queued", "running", "paused"):
        run.reason = {"kind": "cancelled", "message": f"It was {run.state} when it was exported."}
        run.state, run.ended_at = "cancelled", run.started_at or run.created_at
    session.add(run)
    session.flush()
    params = run.config.get("workload", {}).get("params") or {}
    add_parameters(session, [run.id], params)
    return run.id


def _add_points(database: Database, run_id: int, attempt: int, parts: Iterable[PointsOf]) -> None:
    by_sequence = ((sequence, _joined(same)) for sequence, same in groupby(parts, key=lambda part: part.sequence))
    batch: list[Any] = []
    for item in by_sequence:
        batch.append(item)
        if len(batch) >= _ROWS_AT_ONCE:
            _store(database, run_id, attempt, batch)
            batch = []
    _store(database, run_id, attempt, batch, folds=True)


def _joined(parts: Iterable[PointsOf]) -> dict[str, Points]:
    """The points of one segment by series; a file may have cut one in two."""
    found: dict[str, list[Points]] = {}
    for part in parts:
        found.setdefault(part.name, []).append(part.points)
    return {name: concatenate(pieces) for name, pieces in found.items()}


def _store(database: Database, run_id: int, attempt: int, batch: list[Any], *, folds: bool = False) -> None:
    with database.write() as session:
        store_arrivals(session, run_id, attempt, batch, folds=folds)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) >= _ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _new_ids(kind: type[Base]) -> set[str]:
    return {"id"} if kind is Artifact else set()


def _row(kind: type[Any], row: Row, without: set[str]) -> Any:
    """A row of plain values as a row of its table; columns of another version of ampboard are left out."""
    values = {}
    for attribute in inspect(kind).column_attrs:
        if attribute.key in row and attribute.key not in without:
            column = attribute.columns[0].type
            value = row[attribute.key]
            if isinstance(column, UtcDateTime | DateTime) and value is not None:
                value = datetime.fromisoformat(value)
            elif isinstance(column, LargeBinary) and value is not None:
                value = base64.b64decode(value)
            values[attribute.key] = value
    return kind(**values)
