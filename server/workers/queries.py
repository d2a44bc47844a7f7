"""Which workers there are, what they run, and what they can run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import Run, Worker


def is_silent(worker: Worker, lease_s: float) -> bool:
    """Whether the worker's heartbeat is older than a lease: its process is gone or cut off."""
    return datetime.now(UTC) - worker.heartbeat_at > timedelta(seconds=lease_s)


def list_workers(session: Session, lease_s: float) -> list[dict[str, Any]]:
    """Every worker ever seen, live ones first, with the runs it holds now."""
    held = _held(session)
    workers = [
        _worker_json(worker, held.get(worker.id, []), lease_s)
        for worker in session.scalars(select(Worker).order_by(Worker.name))
    ]
    return sorted(workers, key=lambda worker: (worker["state"] == "offline", worker["name"]))


def worker_json(session: Session, worker_id: int, lease_s: float) -> dict[str, Any]:
    """One worker, which is there, with the runs it holds now."""
    return _worker_json(session.get_one(Worker, worker_id), _held(session).get(worker_id, []), lease_s)


def _held(session: Session) -> dict[int, list[dict[str, Any]]]:
    held: dict[int, list[dict[str, Any]]] = {}
    running = select(Run).where(Run.state == "running", Run.worker_id.is_not(None)).order_by(Run.id)
    for run in session.scalars(running):
        assert run.worker_id is not None
        held.setdefault(run.worker_id, []).append(
            {
                "id": run.id,
                "experiment_id": run.experiment_id,
                "recipe_name": run.recipe_name,
                "seed": run.seed,
                "kind": run.kind,
                "step": run.step,
                "steps": run.steps,
                "device": run.config.get("device"),
            }
        )
    return held


def _worker_json(worker: Worker, runs: list[dict[str, Any]], lease_s: float) -> dict[str, Any]:
    return {
        "id": worker.id,
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "slots": worker.slots,
        "devices": worker.devices,
        "state": _state(worker, lease_s),
        "draining": worker.draining,
        "labels": worker.labels,
        "clock_skew_s": worker.clock_skew_s,
        "problem": worker.problem,
        "started_at": worker.started_at,
        "heartbeat_at": worker.heartbeat_at,
        "runs": runs,
    }


def _state(worker: Worker, lease_s: float) -> str:
    if is_silent(worker, lease_s) or worker.state == "offline":
        return "offline"
    return "draining" if worker.draining else worker.state


def live_workers(session: Session, lease_s: float) -> list[Worker]:
    """Workers that answered within a lease and are not offline."""
    return [
        worker
        for worker in session.scalars(select(Worker).where(Worker.state != "offline").order_by(Worker.name))
        if not is_silent(worker, lease_s)
    ]


def device_kinds(workers: list[Worker]) -> set[str]:
    """The kinds of device that these workers offer: ``cpu``, ``cuda``."""
    return {str(device.get("kind")) for worker in workers for device in worker.devices if device.get("kind")}
