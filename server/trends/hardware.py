"""What hardware made of a workload: the newest figures by device and recipe, tensor cores, batch sizes. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Event, Experiment, Run, Workload
from server.trends.queries import Point

MAX_REPORTS = 60


def newest_by_device(points: Sequence[Point]) -> dict[str, dict[str, Point]]:
    """For each device and recipe the newest point; one whose gain was measured comes before one without."""
    found: dict[str, dict[str, Point]] = {}
    for point in points:  # oldest first
        held = found.setdefault(point.device, {}).get(point.recipe)
        if held is None or point.speed_ratio is not None or held.speed_ratio is None:
            found[point.device][point.recipe] = point
    return found


def kernels_of(session: Session, experiment_id: int, recipe: str) -> dict[str, Any] | None:
    """Whether the recipe took effect, and its kernels on tensor cores, from the newest event that tells; else None."""
    query = (
        select(Event.payload)
        .join(Run, Run.id == Event.run_id)
        .where(Run.experiment_id == experiment_id, Run.recipe_name == recipe, Event.kind == "effective_precision")
        .order_by(Event.run_id.desc(), Event.attempt.desc(), Event.sequence.desc())
        .limit(1)
    )
    payload = session.scalars(query).first()
    if payload is None:
        return None
    kernels = payload.get("kernels") or {}
    return {
        "took_effect": payload.get("took_effect"),
        "sentence": payload.get("sentence", ""),
        "num_kernels": len(kernels),
        "num_on_tensor_cores": sum(bool(uses) for uses in kernels.values()),
    }


def batch_reports(session: Session, workload: str) -> list[dict[str, Any]]:
    """The newest answer of each search for the largest batch, the newest search of a device and recipe only."""
    runs = session.scalars(
        select(Run)
        .join(Run.experiment)
        .join(Workload, Workload.id == Experiment.workload_id)
        .where(Workload.name == workload, Run.kind == "batch-size")
        .order_by(Run.id.desc())
        .limit(MAX_REPORTS)
    )
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        report = session.scalars(
            select(Event.payload)
            .where(Event.run_id == run.id, Event.kind == "report")
            .order_by(Event.attempt.desc(), Event.sequence.desc())
            .limit(1)
        ).first()
        device = _device(run)
        if report is not None and (device, run.recipe_name) not in found:
            found[device, run.recipe_name] = {
                "run_id": run.id,
                "recipe": run.recipe_name,
                "recipe_json": run.recipe,
                "device": device,
                "final": report["final"],
                "content": report["content"],
            }
    return list(reversed(found.values()))


def _device(run: Run) -> str:
    device = (run.environment or {}).get("device")
    name = device.get("name") if isinstance(device, dict) else None
    return str(name or run.device)
