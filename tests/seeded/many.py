"""Thousands of further runs as rows with summaries only, for lists: no points, no events."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

import numpy as np
from sqlalchemy import func, insert, select

from server.db.engine import Database
from server.db.tables import Experiment, Project, Run, RunParameter, Series, User, Workload

METRICS = ("train/loss", "eval/accuracy", "perf/samples_per_s")
RECIPES = ("32-true", "bf16-mixed", "16-mixed")


def add_many_runs(database: Database, num_runs: int, runs_each: int = 100) -> None:
    """Add ``num_runs`` completed runs in experiments of ``runs_each``; about a second for ten thousand."""
    rng = np.random.default_rng(7)
    now = datetime.now(UTC)
    with database.write() as session:
        owner, project, workload = (
            session.scalars(select(table).limit(1)).one() for table in (User, Project, Workload)
        )
        first_experiment = (session.scalar(select(func.max(Experiment.id))) or 0) + 1
        first_run = (session.scalar(select(func.max(Run.id))) or 0) + 1
        kinds = {"16-mixed": "dynamic"}  # the others need no loss scaling, and a plan may not name one for them
        recipes = [{"name": name, "precision": name, "scaler": {"kind": kinds.get(name, "none")}} for name in RECIPES]
        plan = {
            "workload": workload.name, "recipes": recipes, "seeds": list(range(runs_each // 3 + 1)),
            "baseline": "32-true", "steps": 1000, "eval_every": 100, "control": False, "measure_gain": False,
            "device": "cpu", "params": {"lr": 0.001}, "source_hash": workload.source_hash,
            "primary": {"metric": "accuracy", "higher_is_better": True, "margin": 0.005, "relative": False, "unit": ""},
        }  # fmt: skip
        num_experiments = -(-num_runs // runs_each)
        session.execute(
            insert(Experiment),
            [
                {"id": first_experiment + n, "project_id": project.id, "workload_id": workload.id,
                 "owner_id": owner.id, "name": f"Sweep {n}", "state": "ended", "plan": plan, "tags": ["many"],
                 "note": "", "created_at": now - timedelta(days=200, minutes=-n), "ended_at": now - timedelta(days=199)}
                for n in range(num_experiments)
            ],
        )  # fmt: skip
        session.execute(insert(Run), [_run(n, first_run, first_experiment, runs_each, now) for n in range(num_runs)])
        session.execute(
            insert(RunParameter),
            [{"run_id": first_run + n, "name": "lr", "text": "0.001", "number": 0.001} for n in range(num_runs)],
        )
        values = rng.uniform(0.1, 1.0, (num_runs, len(METRICS)))
        session.execute(
            insert(Series),
            [
                _summary(first_run + n, name, float(values[n, place]))
                for n in range(num_runs)
                for place, name in enumerate(METRICS)
            ],
        )


def _run(number: int, first_run: int, first_experiment: int, runs_each: int, now: datetime) -> dict[str, object]:
    recipe = RECIPES[number % 3]
    at = now - timedelta(days=200, seconds=-number)
    return {
        "id": first_run + number, "experiment_id": first_experiment + number // runs_each, "kind": "train",
        "role": "baseline" if recipe == "32-true" else "candidate", "recipe_name": recipe,
        "recipe": {"name": recipe, "precision": recipe}, "seed": number % runs_each // 3, "steps": 1000, "config": {},
        "state": "completed", "priority": 0, "attempt": 1, "max_attempts": 2, "step": 1000, "numerics": "native",
        "tags": [], "created_at": at, "started_at": at, "ended_at": at + timedelta(seconds=20),
    }  # fmt: skip


def _summary(run_id: int, name: str, value: float) -> dict[str, object]:
    return {
        "run_id": run_id, "attempt": 1, "name": name, "num_points": 1000, "first_step": 1, "last_step": 1000,
        "last_value": struct.pack("<d", value), "finite_last": value, "finite_min": value / 2, "finite_max": value * 2,
        "finite_sum": value * 1000, "num_nan": 0, "num_pos_inf": 0, "num_neg_inf": 0, "is_newest": True,
    }  # fmt: skip
