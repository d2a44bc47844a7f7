"""Ten thousand runs with a metric and a parameter each."""

from __future__ import annotations

import struct

from sqlalchemy import insert, text

from server.db.engine import Database
from server.db.tables import Experiment, Run, RunParameter, Series
from tests.histories import NOW, add_experiment

_OTHER = 9  # further series of each run, so that rows are as many as real ones have


def add_runs(database: Database, num_runs: int, runs_per_experiment: int = 100) -> None:
    """Add them, and refresh the planner's statistics as ``ampboard db vacuum`` does."""
    for start in range(0, num_runs, runs_per_experiment):
        experiment_id = add_experiment(database, state="ended")
        numbers = range(start, min(start + runs_per_experiment, num_runs))
        with database.write() as session:
            session.get_one(Experiment, experiment_id).judged_at = NOW
            rows = [
                {"experiment_id": experiment_id, "kind": "train", "role": "candidate", "recipe_name": "bf16-mixed",
                 "recipe": {"precision": "bf16-mixed"}, "seed": number, "steps": 100, "state": "completed",
                 "config": {"workload": {"params": {"lr": number % 7}}}, "created_at": NOW}
                for number in numbers
            ]  # fmt: skip
            ids = session.scalars(insert(Run).returning(Run.id), rows).all()
            session.execute(insert(RunParameter), [
                {"run_id": run_id, "name": name, "text": str(value), "number": value}
                for run_id, number in zip(ids, numbers, strict=True)
                for name, value in (("lr", number % 7), ("width", number % 3))
            ])  # fmt: skip
            session.execute(insert(Series), [
                _series(run_id, name, number / num_runs)
                for run_id, number in zip(ids, numbers, strict=True)
                for name in ("acc", *(f"train/metric_{other}" for other in range(_OTHER)))
            ])  # fmt: skip
    with database.write() as session:
        session.execute(text("ANALYZE"))


def _series(run_id: int, name: str, value: float) -> dict[str, object]:
    return {
        "run_id": run_id, "attempt": 1, "name": name, "num_points": 1, "first_step": 1, "last_step": 1,
        "last_value": struct.pack("<d", value), "finite_last": value, "finite_min": value, "finite_max": value,
        "finite_sum": value,
    }  # fmt: skip
