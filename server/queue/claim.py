"""Taking the next queued run that fits the devices a worker has free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, insert, null, select, text, update
from sqlalchemy.orm import Session

from server.db.base import table_of
from server.db.tables import Attempt, Experiment, Run, Worker, Workload
from server.queue.clock import store_now
from server.queue.cluster import Device, Host, has_room
from server.queue.policy import Policy
from server.queue.schedule import Choice, decide
from server.queue.seats import ReservedSeat, reserve_seats, reserved_for, take_seat
from server.queue.snapshot import host_of, read_cluster, read_heads, read_waiting
from server.queue.usage import charge_ended

_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(6384993)")  # any key of our own, the same for every worker

_run, _experiment = table_of(Run).c, table_of(Experiment).c
_worker, _workload = table_of(Worker).c, table_of(Workload).c
_WORKER = select(_worker.name, _worker.draining, _worker.problem, _worker.devices, _worker.labels, _worker.host).where(
    _worker.id == bindparam("worker_id")
)
_ROW = (
    _run.id, _run.experiment_id, _run.attempt, _run.kind, _run.role, _run.recipe, _run.seed, _run.steps, _run.config
)  # fmt: skip
_LEASE = (
    update(table_of(Run))
    .where(_run.id == bindparam("run_id"), _run.state == "queued")
    .values(
        state="running", attempt=_run.attempt + 1, worker_id=bindparam("by"), started_at=bindparam("now"),
        lease_expires_at=bindparam("until"), device=bindparam("on"), step=0, ended_at=None, reserved_at=None,
        reason=null(), numerics=None, environment=null(), result=null(),
    )
    .returning(*_ROW)
)  # fmt: skip
_HELD = select(*_ROW).where(_run.id == bindparam("run_id"))
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
class Gang:
    """Where a worker sits in a run on several hosts: which ``node`` of ``num_hosts``, and where they all meet."""

    node: int
    num_hosts: int
    endpoint: str


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """One attempt of one run, leased to a worker, or its seat in one. ``config`` is as in `server.db.tables.Run`."""

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
    gang: Gang | None = None


def claim(
    session: Session,
    worker_id: int,
    devices_free: Collection[str],
    lease_s: float,
    now: datetime | None = None,
    *,
    policy: Policy | None = None,
    free_bytes: Mapping[str, int] | None = None,
    endpoint: Callable[[], str] = str,
) -> ClaimedRun | None:
    """Take the run that `server.queue.schedule.decide` gives this worker; None when nothing fits, or it is drained.

    A seat in a run on several hosts that waits for this worker comes first, also when it is drained.
    ``devices_free`` names a device once for each free slot (``cpu``, ``cuda:0``); ``free_bytes`` is the memory free on
    some of them now. ``endpoint`` is asked where the hosts of a run shall meet that begins on this one. Two workers
    never get the same run, and no limit is overrun: runs are handed out one after the other (SQLite serialises
    writers, PostgreSQL by an advisory lock), and the run's state is checked in the update.
    """
    if not devices_free:
        return None
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        connection.execute(_ONE_AT_A_TIME)
    now = now or store_now(session)
    policy = policy or Policy(lease_s=lease_s)
    name, draining, problem, devices, labels, machine = connection.execute(_WORKER, {"worker_id": worker_id}).one()
    if problem is not None:
        return None
    here = host_of(worker_id, devices, labels, machine, name)
    free = _free(here, devices_free, free_bytes or {})
    for seat in reserved_for(connection, worker_id):
        taken, free = _seated(session, seat, here, free, now, lease_s)
        if taken is not None:
            return taken
    if draining or not free:
        return None
    heads = read_heads(session)
    if not heads:
        return None
    usage = charge_ended(session, now, policy.half_life_s)
    cluster = read_cluster(session, now, policy, usage, worker_id)
    while True:
        decision = decide(heads, cluster, worker_id, free)
        if decision.first is not None:
            connection.execute(_RESERVE, {"run_id": decision.first.run_id, "now": now})
        if decision.choice is None:
            return None
        claimed = _leased(connection, decision.choice, worker_id, now, lease_s)
        if claimed is not None:
            _begin(connection, claimed, name, now)
            if decision.choice.others:
                claimed = _gathered(connection, claimed, (worker_id, *decision.choice.others), endpoint(), now, lease_s)
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
    return _claimed(connection, row, choice.devices)


def _claimed(connection: Connection, row: Any, devices: Sequence[str]) -> ClaimedRun:
    workload_name, source_hash = connection.execute(_WORKLOAD, {"experiment_id": row.experiment_id}).one()
    return ClaimedRun(
        run_id=row.id, experiment_id=row.experiment_id, attempt=row.attempt, kind=row.kind, role=row.role,
        recipe=row.recipe, seed=row.seed, steps=row.steps, config=row.config, workload_name=workload_name,
        source_hash=source_hash, devices=tuple(devices),
    )  # fmt: skip


def _gathered(
    connection: Connection, claimed: ClaimedRun, workers: Sequence[int], endpoint: str, now: datetime, lease_s: float
) -> ClaimedRun:
    """The same with a seat for every host, or none of it: all is one transaction."""
    reserve_seats(connection, claimed.run_id, claimed.attempt, workers, claimed.devices, endpoint, now, lease_s)
    return replace(claimed, gang=Gang(node=0, num_hosts=len(workers), endpoint=endpoint))


def _seated(
    session: Session, seat: ReservedSeat, here: Host, free: list[Device], now: datetime, lease_s: float
) -> tuple[ClaimedRun | None, list[Device]]:
    """Take a seat that waits, or keep the devices it needs while they are not all free; and what is left for others."""
    connection = session.connection()
    run = read_waiting(session, seat.run_id)
    serving = [device for device in free if device.kind == seat.device and here.serves(run, device)]
    fitting = [device.name for device in serving if has_room(device, run)][: run.num_devices]
    if len(fitting) < run.num_devices or not take_seat(connection, seat, fitting, now, lease_s):
        return None, [device for device in free if device not in serving]
    row = connection.execute(_HELD, {"run_id": seat.run_id}).one()
    gang = Gang(node=seat.node, num_hosts=seat.num_hosts, endpoint=seat.endpoint)
    return replace(_claimed(connection, row, fitting), gang=gang), free


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
