"""What a decision of the scheduler depends on: runs that wait, runs that run, hosts, limits. Plain rows, no database.

Times are seconds on one clock.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from server.queue.needs import NOTHING, Needs

CAUTION = 1.25  # measured durations vary: a run is let in before a reservation only with this much room
OVERDUE = 0.1  # a run that takes longer than expected is thought to need this share of its time so far again
UNKNOWN_S = 60.0  # what a run of unknown duration is charged when it starts, until it has run longer


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued:
    """A run that waits. ``alone``: nothing else may compute on its host. ``limit_s``: it is killed after that time.

    It takes ``num_devices`` on each of ``num_hosts`` hosts. ``reserved_s``: since when it has been first, and devices
    are kept for it.
    """

    run_id: int
    user_id: int
    project_id: int
    device: str  # a kind (cpu, cuda), a name (cuda:0), or auto
    created_s: float
    priority: int = 0
    num_devices: int = 1
    num_hosts: int = 1
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
    """A run that holds devices of a worker. ``progress``: the done part of its steps, 0 to 1.

    ``others``: the further workers of a run on several hosts, each of which gives it as many devices.
    """

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
    others: tuple[int, ...] = ()

    def is_on(self, worker_id: int) -> bool:
        return worker_id == self.worker_id or worker_id in self.others

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
        num_devices = self.num_devices * (1 + len(self.others))
        return num_devices * max(now_s - self.started_s, UNKNOWN_S if self.expected_s is None else self.expected_s)


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
    """A live worker that takes runs, with all its devices, busy or not. ``machine`` names the host that it is on."""

    worker_id: int
    devices: tuple[Device, ...]
    labels: frozenset[str] = frozenset()
    machine: str = ""
    name: str = ""  # of the worker

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
            and needs.worker in ("", self.name)
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

    def hosts_for(self, run: Queued) -> list[Host]:
        """Those on which the run, or its part of one host, fits when they are idle."""
        return [host for host in self.hosts.values() if host.could_run(run)]

    def could_run(self, run: Queued) -> bool:
        """Whether the run fits when all is idle: two workers on one machine are one host."""
        return num_machines(self.hosts_for(run)) >= run.num_hosts

    def num_free(self, run: Queued, host: Host) -> int:
        """How many devices for the run are free on a host, as far as the rows tell."""
        kind = kind_of(run, host.preferred_kind)
        busy = sum(held.num_devices for held in self.running if held.kind == kind and held.is_on(host.worker_id))
        return max(0, host.num_serving(run) - busy)

    def held_on(self, host: Host) -> list[Running]:
        return [run for run in self.running if run.is_on(host.worker_id)]


def num_machines(hosts: Collection[Host]) -> int:
    """On how many different machines these workers are."""
    return len({host.machine or host.worker_id for host in hosts})


def kind_of(run: Queued, preferred_kind: str) -> str:
    """The kind of device that the run gets on a host of that preference."""
    return preferred_kind if run.device == "auto" else run.device.partition(":")[0]


def has_room(device: Device, run: Queued) -> bool:
    """Whether the memory that is free on the device now is enough, where it was measured."""
    return device.free_bytes is None or device.free_bytes >= run.needs.memory_bytes
