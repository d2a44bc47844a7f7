"""The schedule played forward: production's decisions, event by event, for forecasts and for measurements."""

from __future__ import annotations

import heapq
import itertools
import math
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from server.queue.cluster import Cluster, Device, Queued, Running
from server.queue.schedule import HEADS, Choice, decide
from server.queue.usage import Account, decayed

Sort = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Start:
    """A run begins: when, on which devices of which worker, and of which ``others`` if it takes several hosts."""

    run: Queued
    at_s: float
    worker_id: int
    devices: tuple[str, ...]
    others: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


class Backlog:
    """The waiting runs by sort, each sort in its order, so that a decision looks at the first few of each only."""

    def __init__(self, waiting: Iterable[Queued] = ()) -> None:
        self._sorts: dict[Sort, list[tuple[float, bool, float, int, Queued]]] = defaultdict(list)
        for run in waiting:
            self.add(run)

    def __len__(self) -> int:
        return sum(map(len, self._sorts.values()))

    def add(self, run: Queued) -> None:
        insort(self._sorts[_sort(run)], _entry(run))

    def remove(self, run: Queued) -> None:
        entries = self._sorts[_sort(run)]
        entries.remove(_entry(run))
        if not entries:
            del self._sorts[_sort(run)]

    def heads(self) -> list[Queued]:
        return [entry[-1] for entries in self._sorts.values() for entry in entries[:HEADS]]

    def rest(self) -> list[Queued]:
        return [entry[-1] for entries in self._sorts.values() for entry in entries]


def _entry(run: Queued) -> tuple[float, bool, float, int, Queued]:
    return -run.priority, run.reserved_s is None, run.created_s, run.run_id, run


def _sort(run: Queued) -> Sort:
    return run.user_id, run.project_id, run.device, run.num_devices, run.num_hosts, run.needs, run.alone


class Simulation:
    """A cluster from ``begin.now_s`` on, with ``waiting`` in its queue. ``duration_of`` is how long a run really takes.

    An infinite duration holds its devices for ever. Runs that run at the beginning end when ``ends_of`` says.
    """

    def __init__(
        self,
        begin: Cluster,
        waiting: Iterable[Queued],
        *,
        duration_of: Callable[[Queued], float],
        ends_of: Callable[[Running], float],
        half_life_s: float,
    ) -> None:
        self.now_s = begin.now_s
        self.backlog = Backlog(waiting)
        self.usage: dict[Account, tuple[float, float]] = {key: (s, begin.now_s) for key, s in begin.usage.items()}
        self._hosts, self._limits = dict(begin.hosts), begin.limits
        self._half_life_s, self._duration_of = half_life_s, duration_of
        self._running: dict[int, tuple[Running, Mapping[int, tuple[str, ...]]]] = {}
        self._ends: list[tuple[float, int, int]] = []
        self._ids = itertools.count()
        self._free = {
            host.worker_id: [device for device in host.devices for _ in range(device.slots)]
            for host in begin.hosts.values()
        }
        for run in begin.running:
            held = {worker_id: self._some_devices(run, worker_id) for worker_id in (run.worker_id, *run.others)}
            self._hold(run, held, ends_of(run))

    def run(self, arrivals: Sequence[Queued] = ()) -> Iterator[Start]:
        """Every start in order of time, until nothing more can happen. ``arrivals`` are sorted by ``created_s``."""
        coming = iter(arrivals)
        following = next(coming, None)
        while True:
            yield from self._fill()
            next_end = self._ends[0][0] if self._ends else math.inf
            next_arrival = following.created_s if following is not None else math.inf
            self.now_s = min(next_end, next_arrival)
            if math.isinf(self.now_s):
                return
            while following is not None and following.created_s <= self.now_s:
                self.backlog.add(following)
                following = next(coming, None)
            while self._ends and self._ends[0][0] <= self.now_s:
                self._release(heapq.heappop(self._ends)[2])

    def cluster(self) -> Cluster:
        """The state at this moment, as a worker's claim would read it."""
        usage = {
            account: decayed(used_s, self.now_s - at_s, self._half_life_s)
            for account, (used_s, at_s) in self.usage.items()
        }
        running = [run for run, _ in self._running.values()]
        return Cluster(now_s=self.now_s, hosts=self._hosts, running=running, usage=usage, limits=self._limits)

    def _fill(self) -> Iterator[Start]:
        """Let every worker claim until nothing fits."""
        progress = True
        while progress:
            progress = False
            for worker_id, free in self._free.items():
                while free and (choice := self._decide(worker_id, free)) is not None:
                    progress = True
                    yield self._start(choice, worker_id)

    def _decide(self, worker_id: int, free: Sequence[Device]) -> Choice | None:
        decision = decide(self.backlog.heads(), self.cluster(), worker_id, free)
        if decision.first is not None:
            self.backlog.remove(decision.first)
            self.backlog.add(replace(decision.first, reserved_s=self.now_s))
        return decision.choice

    def _start(self, choice: Choice, worker_id: int) -> Start:
        run = choice.run
        self.backlog.remove(run)
        held = Running(
            run_id=run.run_id, user_id=run.user_id, project_id=run.project_id, worker_id=worker_id,
            kind=choice.devices[0].partition(":")[0], started_s=self.now_s, num_devices=run.num_devices,
            alone=run.alone, expected_s=run.expected_s, limit_s=run.limit_s, others=choice.others,
        )  # fmt: skip
        others = {other: self._part_of(run, held.kind, other) for other in choice.others}
        self._hold(held, {worker_id: choice.devices, **others}, self.now_s + self._duration_of(run))
        return Start(run=run, at_s=self.now_s, worker_id=worker_id, devices=choice.devices, others=others)

    def _part_of(self, run: Queued, kind: str, worker_id: int) -> tuple[str, ...]:
        """The devices that a further worker gives to a run on several hosts, as it chooses them itself."""
        host = self._hosts[worker_id]
        fitting = [device.name for device in self._free[worker_id] if device.kind == kind and host.serves(run, device)]
        assert len(fitting) >= run.num_devices, "the decision counted more free devices than there are"
        return tuple(fitting[: run.num_devices])

    def _hold(self, run: Running, devices: Mapping[int, tuple[str, ...]], end_s: float) -> None:
        self._running[run.run_id] = (run, devices)
        for worker_id, names in devices.items():
            free = self._free.get(worker_id, [])
            for name in names:
                free.remove(next(device for device in free if device.name == name))
        heapq.heappush(self._ends, (end_s, next(self._ids), run.run_id))

    def _release(self, run_id: int) -> None:
        run, devices = self._running.pop(run_id)
        for worker_id, names in devices.items():
            host = self._hosts.get(worker_id)
            if host is not None:
                by_name = {device.name: device for device in host.devices}
                self._free[worker_id].extend(by_name[name] for name in names)
        account = (run.user_id, run.kind)
        used_s, at_s = self.usage.get(account, (0.0, self.now_s))
        took_s = run.num_devices * (1 + len(run.others)) * (self.now_s - run.started_s)
        self.usage[account] = (decayed(used_s, self.now_s - at_s, self._half_life_s) + took_s, self.now_s)

    def _some_devices(self, run: Running, worker_id: int) -> tuple[str, ...]:
        """Devices for a run that ran before the simulation began: as many of its kind as it holds there."""
        free: list[Device] = self._free.get(worker_id, [])
        return tuple(device.name for device in free if device.kind == run.kind)[: run.num_devices]
