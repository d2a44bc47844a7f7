"""Rows and frames for tests of what runs leave behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy import select

from amp_core import events
from server.db.engine import Database
from server.db.tables import Experiment, Project, Run, User, Workload

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)


def add_experiment(database: Database, *, state: str = "running") -> int:
    """An experiment without runs, with the rows it hangs on; returns its id."""
    number = next(_numbers)
    with database.write() as session:
        user = session.scalar(select(User)) or User(name=f"user-{number}", role="admin", created_at=NOW)
        project = Project(name=f"project-{number}", created_at=NOW)
        workload = Workload(
            name=f"w-{number}", source_hash="0" * 64, path="w.py", description={}, first_seen_at=NOW, seen_at=NOW
        )
        session.add_all([user, project, workload])
        session.flush()
        experiment = Experiment(
            project_id=project.id, workload_id=workload.id, owner_id=user.id, name=f"experiment-{number}",
            state=state, plan={}, created_at=NOW,
        )  # fmt: skip
        session.add(experiment)
        session.flush()
        return experiment.id


def add_run(database: Database, experiment_id: int | None = None, **fields: Any) -> int:
    """A run that is running its first attempt, unless fields say otherwise; returns its id."""
    experiment_id = experiment_id or add_experiment(database)
    values: dict[str, Any] = {
        "kind": "train", "role": "baseline", "recipe_name": "32-true", "recipe": {}, "seed": 0, "steps": 100,
        "config": {}, "state": "running", "attempt": 1, "created_at": NOW,
    }  # fmt: skip
    with database.write() as session:
        run = Run(experiment_id=experiment_id, **(values | fields))
        session.add(run)
        session.flush()
        return run.id


def change_run(database: Database, run_id: int, **fields: Any) -> None:
    """Set columns of a run's row."""
    with database.write() as session:
        run = session.get_one(Run, run_id)
        for name, value in fields.items():
            setattr(run, name, value)


def column(
    name: str, steps: Iterable[int], values: Iterable[float], times: Iterable[float] | None = None
) -> events.Column:
    """A column of a segment; times default to the step in seconds."""
    at = np.array(list(steps), "<i8")
    return events.Column(
        name=name,
        steps=at.tobytes(),
        values=np.array(list(values), "<f8").tobytes(),
        times=(at.astype("<f8") if times is None else np.array(list(times), "<f8")).tobytes(),
    )


def segment(sequence: int, series: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> events.Frame:
    """A frame with a segment of series given as (steps, values)."""
    columns = [column(name, steps, values) for name, (steps, values) in series.items()]
    return frame(sequence, events.Segment(columns=columns))


def frame(sequence: int, event: events.AnyEvent) -> events.Frame:
    """A frame at a time that follows from its sequence."""
    return events.Frame(sequence=sequence, at=1_700_000_000.0 + sequence, event=event)


def started(sequence: int = 1) -> events.Frame:
    """The first frame of an attempt."""
    return frame(
        sequence,
        events.Started(numerics="native", environment={"torch": "2.13.0"}, num_parameters=3, setup_s=0.5),
    )


def finished(sequence: int, **metrics: float) -> events.Frame:
    """The last frame of an attempt that went well."""
    return frame(
        sequence,
        events.Finished(
            metrics=metrics, steps=100, skipped_steps=1, samples=640, lost_samples=64, train_s=1.5, warmup_s=0.25
        ),
    )
