"""What a plan would cost, from the history of its workload."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Experiment, Run, Workload
from server.experiments.plan import Plan, count_runs

HISTORY = 50  # the newest completed runs that count


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Expected time of a plan on ``slots`` slots; None while no run of the workload has completed."""

    runs: dict[str, int]
    expected_minutes: float | None
    based_on_runs: int


def estimate(session: Session, plan: Plan, slots: int) -> Estimate:
    """From the median seconds per step of the workload's completed runs on the same device, whatever the parameters."""
    counts = count_runs(plan)
    train = _history(session, plan, "train")
    if not train:
        return Estimate(runs=counts, expected_minutes=None, based_on_runs=0)
    run_s = median(seconds / max(steps, 1) for seconds, steps in train) * plan.steps
    benchmarks = _history(session, plan, "benchmark") if counts["benchmark"] else []
    benchmark_s = median(seconds for seconds, _ in benchmarks) if benchmarks else run_s
    total_s = (counts["train"] + counts["control"]) * run_s + counts["benchmark"] * benchmark_s
    return Estimate(
        runs=counts,
        expected_minutes=round(total_s / max(slots, 1) / 60, 2),
        based_on_runs=len(train) + len(benchmarks),
    )


def _history(session: Session, plan: Plan, kind: str) -> list[tuple[float, int]]:
    """Seconds and steps of the newest completed runs."""
    query = (
        select(Run.started_at, Run.ended_at, Run.steps)
        .join(Experiment, Experiment.id == Run.experiment_id)
        .join(Workload, Workload.id == Experiment.workload_id)
        .where(
            Workload.name == plan.workload,
            Run.kind == kind,
            Run.state == "completed",
            Run.config["device"].as_string() == plan.device,
        )
        .order_by(Run.id.desc())
        .limit(HISTORY)
    )
    return [
        ((ended_at - started_at).total_seconds(), steps)
        for started_at, ended_at, steps in session.execute(query)
        if started_at is not None and ended_at is not None
    ]
