"""Which queued run a worker takes next. Pure functions over plain rows: production and simulation call the same ones.

Order: priority, then fair share (who has used least of this kind of device lately), then age. A run that needs several
devices together, or a host alone, and that does not fit yet, reserves them for the earliest moment at which it can
start; others go first there only if they end before, or leave enough devices (EASY backfilling: Lifka, 1995). One that
has come to the first place stays first among its priority, however shares change while it waits for its devices.
Times are seconds on one clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from server.queue.needs import NOTHING, Needs

CAUTION = 1.25  # measured durations vary: a run is let in before a reservation only with this much room
OVERDUE = 0.1  # a run that takes longer than expected is thought to need this share of its time so far again
HEADS = 8  # of the runs that differ in nothing but age and priority, only the first few can be next
UNKNOWN_S = 60.0  # what a run of unknown duration is charged when it starts, until it has run longer


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued:
    """A run that waits. ``alone``: nothing else may compute on its host. ``limit_s``: it is killed after that time.

    ``reserved_s``: since when it has been first, and devices are kept for it.
    """

    run_id: int
    user_id: int
    project_id: int
    device: str  # a kind (cpu, cuda), a name (cuda:0), or auto
    created_s: float
    priority: int = 0
    num_devices: int = 1
    needs: Needs = NOTHING
    alone: bool = False
    expected_s: float | None = None
    limit_s: float = math.inf
    reserved_s: float | None = None

    @property
    def bound_s(self) -> float:
        """How long it takes at most, as far as anybody knows."""
        return self.limit_s if self.expected_s is None else min(self.limit_s, CAUTION * self.expected_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A run that holds devices of a worker. ``progress``: the done part of its steps, 0 to 1."""

    run_id: int
    user_id: int
    project_id: int
    worker_id: int
    kind: str
    started_s: float
    num_devices: int = 1
    alone: bool = False
    expected_s: float | None = None
    limit_s: float = math.inf
    progress: float = 0.0

    def ends_s(self, now_s: float) -> float:
        """When it is expected to end: by its progress, else by earlier runs, else by its limit; never in the past."""
        elapsed = max(0.0, now_s - self.started_s)
        if self.progress >= 0.1:
            whole = elapsed / self.progress
        elif self.expected_s is not None:
            whole = self.expected_s
        else:
            whole = self.limit_s
        return max(self.started_s + min(whole, self.limit_s), now_s + OVERDUE * elapsed)

    def charge_s(self, now_s: float) -> float:
        """Device-seconds its owner is charged: from its start for the whole of it, so that many starts count."""
        return self.num_devices * max(now_s - self.started_s, UNKNOWN_S if self.expected_s is None else self.expected_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """A device of a host, with as many ``slots`` as runs may share it. ``free_bytes``: measured now, None if not."""

    name: str
    abilities: frozenset[str] = frozenset()
    memory_bytes: int | None = None
    slots: int = 1
    free_bytes: int | None = None

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]


@dataclass(frozen=True, kw_only=True)
class Host:
    """A live worker that takes runs, with all its devices, busy or not."""

    worker_id: int
    devices: tuple[Device, ...]
    labels: frozenset[str] = frozenset()

    @property
    def preferred_kind(self) -> str:
        """The kind that a run on device ``auto`` gets here: a GPU where there is one."""
        return "cuda" if any(device.kind == "cuda" for device in self.devices) else "cpu"

    def serves(self, run: Queued, device: Device) -> bool:
        """Whether the device could ever serve the run."""
        wanted = self.preferred_kind if run.device == "auto" else run.device
        needs = run.needs
        return (
            wanted in (device.name, device.kind)
            and needs.abilities <= device.abilities
            and needs.labels <= self.labels
            and (device.memory_bytes is None or device.memory_bytes >= needs.memory_bytes)
        )

    def num_serving(self, run: Queued) -> int:
        return sum(device.slots for device in self.devices if self.serves(run, device))

    def could_run(self, run: Queued) -> bool:
        """Whether the run fits this host when it is idle."""
        return self.num_serving(run) >= run.num_devices


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How many runs of one person, and of one project, may run at once; None is no limit."""

    per_user: int | None = None
    per_project: int | None = None
    of_project: Mapping[int, int] = field(default_factory=dict)  # by project id, instead of per_project


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Everything a decision depends on. ``usage``: device-seconds by user and kind, decayed, without what runs now."""

    now_s: float
    hosts: Mapping[int, Host]
    running: Sequence[Running] = ()
    usage: Mapping[tuple[int, str], float] = field(default_factory=dict)
    limits: Limits = Limits()


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The run to start, on which devices of the worker."""

    run: Queued
    devices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a worker does: start ``choice`` if there is one. ``first`` came to the first place, and is to stay there."""

    choice: Choice | None
    first: Queued | None = None


@dataclass(frozen=True, kw_only=True)
class _Reservation:
    """Devices kept for ``run`` at ``start_s``; ``num_spare`` of them are left then."""

    run: Queued
    start_s: float
    num_spare: int


def rank(queued: Sequence[Queued], cluster: Cluster, preferred_kind: str = "cpu") -> list[Queued]:
    """The order in which runs are looked at: priority, reserved ones, the owner's usage of the kind of device, age."""
    usage: dict[tuple[int, str], float] = dict(cluster.usage)
    for run in cluster.running:
        account = (run.user_id, run.kind)
        usage[account] = usage.get(account, 0.0) + run.charge_s(cluster.now_s)

    def key(run: Queued) -> tuple[int, float, float, float, int]:
        since_s = math.inf if run.reserved_s is None else run.reserved_s
        used_s = usage.get((run.user_id, kind_of(run, preferred_kind)), 0.0)
        return -run.priority, since_s, used_s, run.created_s, run.run_id

    return sorted(queued, key=key)


def kind_of(run: Queued, preferred_kind: str) -> str:
    """The kind of device that the run gets on a host of that preference."""
    return preferred_kind if run.device == "auto" else run.device.partition(":")[0]


def decide(queued: Sequence[Queued], cluster: Cluster, worker_id: int, free: Sequence[Device]) -> Decision:
    """What a worker does now with its ``free`` devices (one entry per free slot)."""
    here = cluster.hosts[worker_id]
    held = [run for run in cluster.running if run.worker_id == worker_id]
    if any(run.alone for run in held):
        return Decision(choice=None)
    reserved: _Reservation | None = None
    first: Queued | None = None
    seen = set[str]()
    for run in rank(queued, cluster, here.preferred_kind):
        if over_limit(run, cluster) is not None or not here.could_run(run):
            continue
        kind = kind_of(run, here.preferred_kind)
        is_first, seen = kind not in seen, seen | {kind}
        fitting = [device for device in free if here.serves(run, device) and has_room(device, run)]
        if len(fitting) >= run.num_devices and (not held or not run.alone):
            devices = _devices_beside(run, fitting, reserved, here, cluster.now_s)
            if devices is not None:
                return Decision(choice=Choice(run=run, devices=tuple(device.name for device in devices)), first=first)
        elif (run.num_devices > 1 or run.alone) and reserved is None:
            reserved = _reservation(run, cluster, here, len(fitting))
            if reserved is not None and is_first and run.reserved_s is None:
                first = run
    return Decision(choice=None, first=first)


def has_room(device: Device, run: Queued) -> bool:
    """Whether the memory that is free on the device now is enough, where it was measured."""
    return device.free_bytes is None or device.free_bytes >= run.needs.memory_bytes


def over_limit(run: Queued, cluster: Cluster) -> str | None:
    """Which limit on concurrent runs keeps it waiting, in words, or None."""
    limits = cluster.limits
    if limits.per_user is not None:
        held = sum(other.user_id == run.user_id for other in cluster.running)
        if held >= limits.per_user:
            return f"its owner has {held} runs at work, of {limits.per_user} allowed"
    allowed = limits.of_project.get(run.project_id, limits.per_project)
    if allowed is not None:
        held = sum(other.project_id == run.project_id for other in cluster.running)
        if held >= allowed:
            return f"its project has {held} runs at work, of {allowed} allowed"
    return None


def _devices_beside(
    run: Queued, fitting: Sequence[Device], reserved: _Reservation | None, here: Host, now_s: float
) -> Sequence[Device] | None:
    """Devices for the run that leave the reservation its start; None when it would have to wait for them."""
    if reserved is None or (math.isfinite(run.bound_s) and now_s + run.bound_s <= reserved.start_s):
        return fitting[: run.num_devices]
    if reserved.run.alone:
        return None
    apart = [device for device in fitting if not here.serves(reserved.run, device)]
    shared = [device for device in fitting if here.serves(reserved.run, device)]
    needed = max(0, run.num_devices - len(apart))
    if needed > reserved.num_spare:
        return None
    return [*apart, *shared][: run.num_devices]


def _reservation(run: Queued, cluster: Cluster, here: Host, num_free: int) -> _Reservation | None:
    """The reservation on this host, if it is where the run can start first."""
    start_s, num_spare = _earliest(run, cluster, here, num_free)
    for host in cluster.hosts.values():
        if host.worker_id == here.worker_id or not host.could_run(run):
            continue
        kind = kind_of(run, host.preferred_kind)
        busy = sum(r.num_devices for r in cluster.running if r.worker_id == host.worker_id and r.kind == kind)
        elsewhere_s, _ = _earliest(run, cluster, host, max(0, host.num_serving(run) - busy))
        if (elsewhere_s, host.worker_id) < (start_s, here.worker_id):
            return None
    return _Reservation(run=run, start_s=start_s, num_spare=num_spare)


def _earliest(run: Queued, cluster: Cluster, host: Host, num_free: int) -> tuple[float, int]:
    """When enough devices of the host are free for the run, and how many more than enough are free then."""
    now_s = cluster.now_s
    kind = kind_of(run, host.preferred_kind)
    held = [r for r in cluster.running if r.worker_id == host.worker_id]
    if run.alone:
        return max([now_s, *(r.ends_s(now_s) for r in held)]), 0
    start_s = now_s
    ends = sorted((r.ends_s(now_s), r.num_devices) for r in held if r.kind == kind)
    for end_s, num_devices in ends:
        if num_free >= run.num_devices:
            break
        start_s, num_free = end_s, num_free + num_devices
    return (start_s if num_free >= run.num_devices else math.inf), num_free - run.num_devices
