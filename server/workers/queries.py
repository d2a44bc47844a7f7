"""Which workers there are, what they run, and what they can run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.db.tables import DeviceReading, Run, Seat, Worker
from server.errors import NotFound


def is_silent(worker: Worker, lease_s: float) -> bool:
    """Whether the worker's heartbeat is older than a lease: its process is gone or cut off."""
    return datetime.now(UTC) - worker.heartbeat_at > timedelta(seconds=lease_s)


def list_workers(session: Session, lease_s: float) -> list[dict[str, Any]]:
    """Every worker ever seen, live ones first, with the runs it holds now, and its seats in runs on several hosts."""
    held, readings = _held(session), _latest_readings(session)
    workers = [
        _worker_json(worker, held.get(worker.id, []), readings.get(worker.id, {}), lease_s)
        for worker in session.scalars(select(Worker).order_by(Worker.name))
    ]
    return sorted(workers, key=lambda worker: (worker["state"] == "offline", worker["name"]))


def worker_json(session: Session, worker_id: int, lease_s: float) -> dict[str, Any]:
    """One worker, which is there, with the runs it holds now."""
    held, readings = _held(session), _latest_readings(session)
    worker = session.get_one(Worker, worker_id)
    return _worker_json(worker, held.get(worker_id, []), readings.get(worker_id, {}), lease_s)


def _latest_readings(session: Session) -> dict[int, dict[str, Any]]:
    """The newest reading of each device of the last minute, by worker and device."""
    newest: dict[int, dict[str, Any]] = {}
    recent = DeviceReading.at > datetime.now(UTC) - timedelta(minutes=1)
    for reading in session.scalars(select(DeviceReading).where(recent).order_by(DeviceReading.at)):
        newest.setdefault(reading.worker_id, {})[reading.device] = reading.values
    return newest


def readings_of(session: Session, worker_id: int, device: str | None) -> list[dict[str, Any]]:
    """The last hour of a worker's devices, or of one, by time. Raises `NotFound`."""
    if session.get(Worker, worker_id) is None:
        raise NotFound(f"worker {worker_id} does not exist: GET /api/v1/workers lists those that do")
    query = select(DeviceReading).where(DeviceReading.worker_id == worker_id)
    if device is not None:
        query = query.where(DeviceReading.device == device)
    rows = session.scalars(query.order_by(DeviceReading.at, DeviceReading.device))
    return [{"device": row.device, "at": row.at, "values": row.values} for row in rows]


def _held(session: Session) -> dict[int, list[dict[str, Any]]]:
    held: dict[int, list[dict[str, Any]]] = {}
    running = select(Run).where(Run.state == "running", Run.worker_id.is_not(None)).order_by(Run.id)
    for run in session.scalars(running):
        assert run.worker_id is not None
        held.setdefault(run.worker_id, []).append(_held_json(run, 0))
    seated = (
        select(Run, Seat.worker_id, Seat.node)
        .join(Seat, (Seat.run_id == Run.id) & (Seat.attempt == Run.attempt))
        .where(Run.state == "running", Seat.node > 0, Seat.state != "ended")
        .order_by(Run.id)
    )
    for run, worker_id, node in session.execute(seated):
        held.setdefault(worker_id, []).append(_held_json(run, node))
    return held


def _held_json(run: Run, node: int) -> dict[str, Any]:
    """A run at work, or the part of it that a further host has."""
    return {
        "id": run.id,
        "experiment_id": run.experiment_id,
        "recipe_name": run.recipe_name,
        "seed": run.seed,
        "kind": run.kind,
        "step": run.step,
        "steps": run.steps,
        "device": run.config.get("device"),
        "node": node,
        "num_hosts": run.num_hosts,
    }


def _worker_json(
    worker: Worker, runs: list[dict[str, Any]], readings: dict[str, Any], lease_s: float
) -> dict[str, Any]:
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
        "readings": readings,
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


def gpu_abilities(workers: list[Worker]) -> set[str]:
    """What at least one GPU of these workers can compute: ``bf16``, ``fp8`` and the like."""
    gpus = [device for worker in workers for device in worker.devices if device.get("kind") == "cuda"]
    return {str(ability) for device in gpus for ability in device.get("abilities", [])}
