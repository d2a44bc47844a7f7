"""Taking the next queued run that fits the devices a worker has free."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, insert, null, select, text, update
from sqlalchemy.orm import Session

from server.db.base import table_of
from server.db.tables import Attempt, Experiment, Run, Worker, Workload
from server.queue.clock import store_now
from server.queue.policy import Policy
from server.queue.schedule import Choice, Device, Host, decide
from server.queue.snapshot import read_cluster, read_heads
from server.queue.usage import charge_ended

_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(6384993)")  # any key of our own, the same for every worker

_run, _experiment = table_of(Run).c, table_of(Experiment).c
_worker, _workload = table_of(Worker).c, table_of(Workload).c
_WORKER = select(_worker.name, _worker.draining, _worker.problem).where(_worker.id == bindparam("worker_id"))
_LEASE = (
    update(table_of(Run))
    .where(_run.id == bindparam("run_id"), _run.state == "queued")
    .values(
        state="running", attempt=_run.attempt + 1, worker_id=bindparam("by"), started_at=bindparam("now"),
        lease_expires_at=bindparam("until"), device=bindparam("on"), step=0, ended_at=None, reserved_at=None,
        reason=null(), numerics=None, environment=null(), result=null(),
    )
    .returning(
        _run.id, _run.experiment_id, _run.attempt, _run.kind, _run.role, _run.recipe, _run.seed, _run.steps, _run.config
    )
)  # fmt: skip
_RESERVE = (
    update(table_of(Run))
    .where(_run.id == bindparam("run_id"), _run.state == "queued")
    .values(reserved_at=bindparam("now"))
)
_WORKLOAD = (
    select(_workload.name, _workload.source_hash)
    .join(table_of(Experiment), _experiment.workload_id == _workload.id)
    .where(_experiment.id == bindparam("experiment_id"))
)
_ATTEMPT = insert(table_of(Attempt))
_IS_RUNNING = (
    update(table_of(Experiment))
    .where(_experiment.id == bindparam("experiment_id"), _experiment.state == "queued")
    .values(state="running")
)


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """One attempt of one run, leased to a worker. ``config`` is the row's, see `server.db.tables.Run`."""

    run_id: int
    experiment_id: int
    attempt: int
    kind: str
    role: str
    recipe: dict[str, Any]
    seed: int
    steps: int
    config: dict[str, Any]
    workload_name: str
    source_hash: str
    devices: tuple[str, ...]


def claim(
    session: Session,
    worker_id: int,
    devices_free: Collection[str],
    lease_s: float,
    now: datetime | None = None,
    *,
    policy: Policy | None = None,
    free_bytes: Mapping[str, int] | None = None,
) -> ClaimedRun | None:
    """Take the run that `server.queue.schedule.decide` gives this worker; None when nothing fits, or it is drained.

    ``devices_free`` names a device once for each free slot (``cpu``, ``cuda:0``); ``free_bytes`` is the memory free on
    some of them now. Two workers never get the same run, and no limit is overrun: runs are handed out one after the
    other (SQLite serialises writers, PostgreSQL by an advisory lock), and the run's state is checked in the update.
    """
    if not devices_free:
        return None
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        connection.execute(_ONE_AT_A_TIME)
    now = now or store_now(session)
    policy = policy or Policy(lease_s=lease_s)
    name, draining, problem = connection.execute(_WORKER, {"worker_id": worker_id}).one()
    if draining or problem is not None:
        return None
    heads = read_heads(session)
    if not heads:
        return None
    usage = charge_ended(session, now, policy.half_life_s)
    cluster = read_cluster(session, now, policy, usage, worker_id)
    free = _free(cluster.hosts[worker_id], devices_free, free_bytes or {})
    while True:
        decision = decide(heads, cluster, worker_id, free)
        if decision.first is not None:
            connection.execute(_RESERVE, {"run_id": decision.first.run_id, "now": now})
        if decision.choice is None:
            return None
        claimed = _leased(connection, decision.choice, worker_id, now, lease_s)
        if claimed is not None:
            _begin(connection, claimed, name, now)
            return claimed
        heads.remove(decision.choice.run)  # cancelled or paused meanwhile


def _free(host: Host, names: Collection[str], free_bytes: Mapping[str, int]) -> list[Device]:
    described = {device.name: device for device in host.devices}
    found = [described.get(name) or Device(name=name) for name in sorted(names)]
    return [replace(device, free_bytes=free_bytes.get(device.name)) for device in found]


def _leased(connection: Connection, choice: Choice, worker_id: int, now: datetime, lease_s: float) -> ClaimedRun | None:
    """Begin the next attempt under a lease; None when the run was taken meanwhile. Its step counts anew."""
    device = choice.devices[0].partition(":")[0] if choice.run.device == "auto" else choice.run.device
    given = {
        "run_id": choice.run.run_id, "by": worker_id, "now": now, "until": now + timedelta(seconds=lease_s),
        "on": device,
    }  # fmt: skip
    row = connection.execute(_LEASE, given).one_or_none()
    if row is None:
        return None
    workload_name, source_hash = connection.execute(_WORKLOAD, {"experiment_id": row.experiment_id}).one()
    return ClaimedRun(
        run_id=row.id, experiment_id=row.experiment_id, attempt=row.attempt, kind=row.kind, role=row.role,
        recipe=row.recipe, seed=row.seed, steps=row.steps, config=row.config, workload_name=workload_name,
        source_hash=source_hash, devices=choice.devices,
    )  # fmt: skip


def _begin(connection: Connection, claimed: ClaimedRun, worker_name: str, now: datetime) -> None:
    """The rows that go with a lease: the attempt, and the experiment that is running now."""
    connection.execute(
        _ATTEMPT,
        {
            "run_id": claimed.run_id, "number": claimed.attempt, "worker_name": worker_name, "started_at": now,
            "devices": list(claimed.devices),
        },
    )  # fmt: skip
    if claimed.role != "analysis":  # which is no part of the experiment's own course
        connection.execute(_IS_RUNNING, {"experiment_id": claimed.experiment_id})
