"""What an export consists of: tables of plain values, in the order in which an import needs them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from server.db.engine import Database
from server.db.tables import Artifact, Attempt, Base, Event, Experiment, Log, Run
from server.metrics.arrivals import arrivals_after
from server.metrics.codec import Points

Row = dict[str, Any]
TABLES = ("experiments", "runs", "attempts", "events", "logs", "artifacts")
_NOT_MOVED = {"worker_id", "lease_expires_at", "published_at", "project_id", "workload_id", "owner_id"}
_SEGMENTS_AT_ONCE = 500


class PointsOf(NamedTuple):
    """The points that one segment brought of one series."""

    run_id: int
    attempt: int
    sequence: int
    name: str
    points: Points


class Selection(NamedTuple):
    """The experiments and the runs of an export, by id."""

    experiment_ids: Sequence[int]
    run_ids: Sequence[int]


def select_all(session: Session) -> Selection:
    """Everything."""
    experiments = session.scalars(select(Experiment.id).order_by(Experiment.id)).all()
    return Selection(experiments, session.scalars(select(Run.id).order_by(Run.id)).all())


def select_experiment(session: Session, experiment_id: int) -> Selection:
    """One experiment with its runs; empty when it is not there."""
    found = session.scalars(select(Experiment.id).where(Experiment.id == experiment_id)).all()
    runs = session.scalars(select(Run.id).where(Run.experiment_id == experiment_id).order_by(Run.id)).all()
    return Selection(found, runs)


def select_run(session: Session, run_id: int) -> Selection:
    """One run with its experiment; empty when it is not there."""
    found = session.scalars(select(Run.experiment_id).where(Run.id == run_id)).all()
    return Selection(found, [run_id] if found else [])


def rows_of(database: Database, table: str, chosen: Selection) -> Iterator[Row]:
    """The rows of one table, one run or experiment after the other, each read in a transaction of its own."""
    if table == "experiments":
        for experiment_id in chosen.experiment_ids:
            with database.read() as session:
                experiment = session.get_one(Experiment, experiment_id)
                yield {
                    **_plain(experiment),
                    "project": experiment.project.name,
                    "owner": experiment.owner.name,
                    "workload": {**_plain(experiment.workload), "id": None},
                }
        return
    for run_id in chosen.run_ids:
        with database.read() as session:
            yield from [_plain(row) for row in _rows_of_run(session, table, run_id)]


def points_of(database: Database, chosen: Selection) -> Iterator[PointsOf]:
    """Every point in the order of its arrival, run by run and attempt by attempt."""
    for run_id in chosen.run_ids:
        with database.read() as session:
            last_attempt = session.get_one(Run, run_id).attempt
        for attempt in range(1, last_attempt + 1):
            sequence, more = 0, True
            while more:
                with database.read() as session:
                    found = arrivals_after(session, run_id, attempt, sequence, _SEGMENTS_AT_ONCE)
                for item in found.items:
                    for name, points in item.series.items():
                        yield PointsOf(run_id, attempt, item.sequence, name, points)
                sequence, more = found.through, found.more


def _rows_of_run(session: Session, table: str, run_id: int) -> Sequence[Base]:
    match table:
        case "runs":
            return session.scalars(select(Run).where(Run.id == run_id)).all()
        case "attempts":
            return session.scalars(select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number)).all()
        case "events":
            query = select(Event).where(Event.run_id == run_id).order_by(Event.attempt, Event.sequence)
            return session.scalars(query).all()
        case "logs":
            return session.scalars(select(Log).where(Log.run_id == run_id).order_by(Log.attempt, Log.position)).all()
        case "artifacts":
            query_ = select(Artifact).where(Artifact.run_id == run_id).order_by(Artifact.attempt, Artifact.name)
            return session.scalars(query_.options(undefer(Artifact.content))).all()
    raise AssertionError(f"{table} is no table of an export")


def _plain(row: Base) -> Row:
    columns = [column.key for column in row.__mapper__.column_attrs if column.key not in _NOT_MOVED]
    return {key: _value(getattr(row, key)) for key in columns}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value
