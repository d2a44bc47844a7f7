"""Reads a workload's history: one point for each recipe of each experiment that has ended."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean
from typing import Any, Literal, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from server.db.tables import Experiment, Run, Series, Workload

Measure = Literal["speed", "memory", "quality"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
MAX_EXPERIMENTS = 400
SPEED = "perf/samples_per_s"
MEMORY = ("memory/allocated_bytes", "memory/process_bytes")  # the device's where it is recorded


@dataclass(frozen=True, kw_only=True)
class Point:
    """What one recipe reached in one experiment, over its completed runs; figures are None where nothing tells them.

    ``speed`` is the mean of samples/s, ``memory`` the highest peak in bytes, ``quality`` the mean of the last primary
    metric; ``speed_ratio`` and ``memory_ratio`` are the comparison's, against the baseline. ``settings`` are parameters
    and steps: only points of equal recipe, device and settings are one series.
    """

    experiment_id: int
    name: str
    at: datetime
    recipe: str
    recipe_json: dict[str, Any]
    device: str
    commit: str
    settings: str
    num_runs: int
    is_emulated: bool
    speed: float | None
    memory: float | None
    quality: float | None
    higher_is_better: bool
    metric: str
    verdict: str | None
    speed_ratio: float | None
    speed_interval: tuple[float, float] | None
    memory_ratio: float | None

    @property
    def series(self) -> tuple[str, str, str]:
        return self.recipe, self.device, self.settings

    def value(self, measure: Measure) -> float | None:
        """The figure of a measure, if it is finite."""
        value = {"speed": self.speed, "memory": self.memory, "quality": self.quality}[measure]
        return value if value is not None and math.isfinite(value) else None

    def is_better_higher(self, measure: Measure) -> bool:
        return {"speed": True, "memory": False, "quality": self.higher_is_better}[measure]


def points_of(session: Session, workload: str) -> list[Point]:
    """The points of a workload over all its versions, archived experiments among them, oldest first."""
    query = (
        select(Experiment)
        .join(Experiment.workload)
        .where(
            Workload.name == workload, Experiment.state.in_(("ended", "cancelled")), Experiment.ended_at.is_not(None)
        )
        .options(joinedload(Experiment.workload))
        .order_by(Experiment.ended_at.desc(), Experiment.id.desc())
        .limit(MAX_EXPERIMENTS)
    )
    experiments = session.scalars(query).all()
    runs = _runs(session, [experiment.id for experiment in experiments])
    figures = _figures(session, [run.id for of_one in runs.values() for run in of_one], experiments)
    points = []
    for experiment in reversed(experiments):
        for recipe in experiment.plan["recipes"]:
            of_recipe = [run for run in runs.get(experiment.id, []) if run.recipe_name == recipe["name"]]
            if of_recipe:
                points.append(_point(experiment, recipe, of_recipe, figures))
    return points


@dataclass(frozen=True, kw_only=True)
class _RunRow:
    id: int
    recipe_name: str
    numerics: str | None
    device: str
    commit: str


def _runs(session: Session, experiment_ids: Sequence[int]) -> dict[int, list[_RunRow]]:
    """Completed trainings by experiment; of their environments only device and commit."""
    rows = session.execute(
        select(
            Run.experiment_id, Run.id, Run.recipe_name, Run.numerics, Run.device,
            Run.environment["device"]["name"].as_string(), Run.environment["git_commit"].as_string(),
        )
        .where(Run.experiment_id.in_(experiment_ids), Run.kind == "train", Run.state == "completed",
               Run.role.in_(("baseline", "candidate")))
        .order_by(Run.id)
    )  # fmt: skip
    found: dict[int, list[_RunRow]] = {}
    for experiment_id, run_id, recipe, numerics, kind, device, commit in rows:
        run = _RunRow(id=run_id, recipe_name=recipe, numerics=numerics, device=device or kind, commit=commit or "")
        found.setdefault(experiment_id, []).append(run)
    return found


def _figures(
    session: Session, run_ids: Sequence[int], experiments: Sequence[Experiment]
) -> dict[int, dict[str, dict[str, float | None]]]:
    """Mean, peak and last value of the series that count, by run and name."""
    names = {SPEED, *MEMORY, *(f"eval/{experiment.plan['primary']['metric']}" for experiment in experiments)}
    rows = session.execute(
        select(
            Series.run_id, Series.name, Series.num_points, Series.num_nan, Series.num_pos_inf, Series.num_neg_inf,
            Series.finite_sum, Series.finite_max, Series.finite_last,
        ).where(Series.run_id.in_(run_ids), Series.is_newest, Series.name.in_(names))
    )  # fmt: skip
    found: dict[int, dict[str, dict[str, float | None]]] = {}
    for run_id, name, num, nan, up, down, total, peak, last in rows:
        finite = num - nan - up - down
        mean = total / finite if finite else None
        found.setdefault(run_id, {})[name] = {"mean": mean, "max": peak, "last": last}
    return found


def _point(
    experiment: Experiment,
    recipe: dict[str, Any],
    runs: Sequence[_RunRow],
    figures: dict[int, dict[str, dict[str, float | None]]],
) -> Point:
    primary = experiment.plan["primary"]
    told = [figures.get(run.id, {}) for run in runs]
    is_emulated = any(run.numerics == "emulated" for run in runs)
    memory = next((name for name in MEMORY if any(name in each for each in told)), MEMORY[0])
    speeds = _known(told, SPEED, "mean")
    peaks = _known(told, memory, "max")
    qualities = _known(told, f"eval/{primary['metric']}", "last")
    compared = _compared(experiment, recipe["name"])
    gain = compared.get("gain") or {}
    speed, ratios = gain.get("speed") or {}, gain.get("memory") or {}
    interval = speed.get("interval")
    assert experiment.ended_at is not None, "the query asks for ended ones"
    return Point(
        experiment_id=experiment.id,
        name=experiment.name,
        at=experiment.ended_at,
        recipe=recipe["name"],
        recipe_json=recipe,
        device=runs[0].device,
        commit=runs[0].commit,
        settings=settings_text(experiment.plan),
        num_runs=len(runs),
        is_emulated=is_emulated,
        speed=fmean(speeds) if speeds and not is_emulated else None,
        memory=max(peaks) if peaks and not is_emulated else None,
        quality=fmean(qualities) if qualities else None,
        higher_is_better=bool(primary["higher_is_better"]),
        metric=primary["metric"],
        verdict=compared.get("verdict"),
        speed_ratio=speed.get("ratio"),
        speed_interval=(float(interval[0]), float(interval[1])) if interval else None,
        memory_ratio=ratios.get("device_peak_ratio") or ratios.get("saved_for_backward_ratio"),
    )


def _known(told: Sequence[dict[str, dict[str, float | None]]], name: str, figure: str) -> list[float]:
    values = (each[name][figure] for each in told if name in each)
    return [value for value in values if value is not None]


def _compared(experiment: Experiment, recipe: str) -> dict[str, Any]:
    recipes = (experiment.comparison or {}).get("recipes", [])
    return next((item for item in recipes if item.get("recipe") == recipe), {})


def settings_text(plan: dict[str, Any]) -> str:
    """What makes figures of two experiments incomparable: parameters and steps, in one line."""
    spelled = [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in sorted((plan.get("params") or {}).items())
    ]
    fork = plan.get("fork")
    begins = f" after step {fork['step']} of run {fork['run']}" if fork else ""
    return ", ".join([*spelled, f"{plan['steps']} steps{begins}"])
