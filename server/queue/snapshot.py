"""From rows to the plain data that `server.queue.schedule` decides on.

Claims are many and short, so the statements are built once, over tables instead of mapped classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, bindparam, func, or_, select
from sqlalchemy.orm import Session

from server.db.base import table_of
from server.db.tables import Experiment, Project, Run, Seat, Worker
from server.queue.cluster import Cluster, Device, Host, Limits, Queued, Running
from server.queue.needs import parse_needs
from server.queue.policy import Policy
from server.queue.schedule import HEADS
from server.queue.usage import Account

_run, _experiment = table_of(Run).c, table_of(Experiment).c
_worker, _project, _seat = table_of(Worker).c, table_of(Project).c, table_of(Seat).c
_runs = table_of(Run).join(table_of(Experiment), _experiment.id == _run.experiment_id)

_ANY = (
    select(
        _run.id, _experiment.owner_id, _experiment.project_id, _run.device, _run.created_at, _run.priority,
        _run.num_devices, _run.num_hosts, _run.needs, _run.kind, _run.expected_s, _run.max_time_s, _run.reserved_at,
    )
    .select_from(_runs)
)  # fmt: skip
_QUEUED = _ANY.where(_run.state == "queued")
_sort = (
    _experiment.owner_id, _experiment.project_id, _run.device, _run.num_devices, _run.num_hosts, _run.needs, _run.kind,
)  # fmt: skip
_order = (_run.priority.desc(), _run.reserved_at.is_(None), _run.created_at, _run.id)
_placed = _QUEUED.add_columns(func.row_number().over(partition_by=_sort, order_by=_order).label("place")).subquery()
_HEADS = select(*(column for column in _placed.c if column.name != "place")).where(_placed.c.place <= HEADS)
_RUNNING = (
    select(
        _run.id, _experiment.owner_id, _experiment.project_id, _run.worker_id, _run.device, _run.started_at,
        _run.num_devices, _run.kind, _run.expected_s, _run.max_time_s, _run.step, _run.steps, _run.num_hosts,
    )
    .select_from(_runs)
    .where(_run.state == "running", _run.worker_id.is_not(None))
)  # fmt: skip
_alive = and_(
    _worker.state != "offline", _worker.draining.is_(False), _worker.problem.is_(None),
    _worker.heartbeat_at > bindparam("since"),
)  # fmt: skip
_WORKERS = select(_worker.id, _worker.devices, _worker.labels, _worker.host, _worker.name).where(
    or_(_alive, _worker.id == bindparam("worker_id"))
)
_SEATS = (
    select(_seat.run_id, _seat.worker_id)
    .select_from(table_of(Seat).join(table_of(Run), and_(_run.id == _seat.run_id, _run.attempt == _seat.attempt)))
    .where(_run.state == "running", _seat.node > 0, _seat.state != "ended")
    .order_by(_seat.run_id, _seat.node)
)
_LIMITED = select(_project.id, _project.max_running).where(_project.max_running.is_not(None))


def read_cluster(
    session: Session, now: datetime, policy: Policy, usage: Mapping[Account, float], worker_id: int = 0
) -> Cluster:
    """The live workers that take runs (and ``worker_id`` in any case), what runs, and the accounts."""
    connection = session.connection()
    given = {"since": now - timedelta(seconds=policy.lease_s), "worker_id": worker_id}
    workers = connection.execute(_WORKERS, given).all()
    hosts = {worker.id: host_of(*worker) for worker in workers}
    limited = connection.execute(_LIMITED).all()
    running = connection.execute(_RUNNING).all()
    others: dict[int, tuple[int, ...]] = {}
    if any(row.num_hosts > 1 for row in running):
        for run_id, other in connection.execute(_SEATS):
            others[run_id] = (*others.get(run_id, ()), other)
    return Cluster(
        now_s=now.timestamp(),
        hosts=hosts,
        running=[_running(row, others.get(row.id, ())) for row in running],
        usage=usage,
        limits=Limits(
            per_user=policy.max_running_per_user,
            per_project=policy.max_running_per_project,
            of_project={project_id: allowed for project_id, allowed in limited},  # noqa: C416 - rows
        ),
    )


def host_of(
    worker_id: int, devices: Iterable[Mapping[str, Any]], labels: Iterable[str], machine: str, name: str
) -> Host:
    """A worker's row as the scheduler sees it."""
    known = tuple(device_of(device) for device in devices)
    return Host(
        worker_id=worker_id,
        devices=known or (Device(name="cpu"),),
        labels=frozenset(labels),
        machine=machine,
        name=name,
    )


def device_of(description: Mapping[str, Any]) -> Device:
    """A device as a worker describes it in its row."""
    return Device(
        name=str(description.get("device") or description.get("kind") or "cpu"),
        abilities=frozenset(description.get("abilities") or ()),
        memory_bytes=description.get("memory_bytes"),
        slots=int(description.get("slots", 1)),
    )


def read_heads(session: Session) -> list[Queued]:
    """The first few queued runs of each sort: enough to choose the next one, however long the queue is."""
    return [_queued(row) for row in session.connection().execute(_HEADS)]


def read_waiting(session: Session, run_id: int) -> Queued:
    """One run as it was while it waited, whatever its state is now."""
    return _queued(session.connection().execute(_ANY.where(_run.id == run_id)).one())


def read_queue(session: Session) -> list[Queued]:
    """Every queued run."""
    return [_queued(row) for row in session.connection().execute(_QUEUED)]


def _is_alone(kind: str, device: str) -> bool:
    """Whether a run must have its host for itself: a benchmark whose clock other runs would disturb."""
    return kind == "benchmark" and not device.startswith("cuda")


def _queued(row: Sequence[Any]) -> Queued:
    (run_id, user_id, project_id, device, created_at, priority, num_devices, num_hosts, needs, kind, expected_s,
     max_time_s, reserved_at) = row  # fmt: skip
    return Queued(
        run_id=run_id, user_id=user_id, project_id=project_id, device=device, created_s=created_at.timestamp(),
        priority=priority, num_devices=num_devices, num_hosts=num_hosts, needs=parse_needs(needs),
        alone=_is_alone(kind, device), expected_s=expected_s, limit_s=math.inf if max_time_s is None else max_time_s,
        reserved_s=None if reserved_at is None else reserved_at.timestamp(),
    )  # fmt: skip


def _running(row: Sequence[Any], others: tuple[int, ...]) -> Running:
    (run_id, user_id, project_id, worker_id, device, started_at, num_devices, kind, expected_s, max_time_s, step,
     steps, _) = row  # fmt: skip
    return Running(
        run_id=run_id, user_id=user_id, project_id=project_id, worker_id=worker_id, kind=device.partition(":")[0],
        started_s=started_at.timestamp(), num_devices=num_devices, alone=_is_alone(kind, device),
        expected_s=expected_s, limit_s=math.inf if max_time_s is None else max_time_s,
        progress=step / steps if steps else 0.0, others=others,
    )  # fmt: skip
