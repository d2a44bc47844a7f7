"""How long runs are expected to take, from those that completed; kept on the row, so that scheduling only reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from statistics import median

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from server.db.tables import Experiment, Run, Workload

HISTORY = 200  # the newest completed runs of a workload that count


def expect(session: Session, runs: Sequence[Run], workload: str) -> None:
    """Set ``expected_s`` of new runs from the median time per step of the workload's runs on such a device.

    Those of the same recipe count, else those of any recipe; without one it stays unknown. A benchmark times blocks of
    a fixed length, whatever its steps: of benchmarks it is the median time of a whole one.
    """
    devices = {run.device.partition(":")[0] for run in runs}
    rows = session.execute(
        select(Run.kind, Run.recipe_name, Run.device, Run.steps, Run.started_at, Run.ended_at)
        .join(Experiment, Experiment.id == Run.experiment_id)
        .join(Workload, Workload.id == Experiment.workload_id)
        .where(Workload.name == workload, Run.state == "completed", Run.attempt == 1)
        .order_by(Run.id.desc())
        .limit(HISTORY)
    )
    per_step: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for kind, recipe, device, steps, started_at, ended_at in rows:
        where = device.partition(":")[0]
        if where in devices and started_at is not None and ended_at is not None:
            step_s = (ended_at - started_at).total_seconds() / _scale(kind, steps)
            for key in ((kind, where, recipe), (kind, where)):
                per_step[key].append(step_s)
    for run in runs:
        where = run.device.partition(":")[0]
        known = per_step.get((run.kind, where, run.recipe_name)) or per_step.get((run.kind, where))
        if known:
            run.expected_s = median(known) * _scale(run.kind, run.steps)
    session.flush()


def _scale(kind: str, steps: int) -> int:
    return 1 if kind == "benchmark" else max(steps, 1)


def learn(session: Session, run: Run, now: datetime) -> None:
    """Let the waiting runs of the same experiment expect what this completed one took.

    Rows that others hold are left out: the next run to complete tells them.
    """
    if run.started_at is None or run.attempt != 1:  # a later attempt may have made only the rest
        return
    took_s = max(0.0, (now - run.started_at).total_seconds())
    same = Run.recipe_name == run.recipe_name
    waiting = (
        select(Run.id)
        .where(
            Run.experiment_id == run.experiment_id, Run.kind == run.kind, Run.state == "queued",
            same | Run.expected_s.is_(None),
        )
        .with_for_update(skip_locked=True)
    )  # fmt: skip
    ids = session.scalars(waiting).all()
    if ids:
        session.execute(
            update(Run).where(Run.id.in_(ids)).values(expected_s=took_s).execution_options(synchronize_session=False)
        )
