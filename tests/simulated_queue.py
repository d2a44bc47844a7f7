"""A day of a team's queue, simulated with the scheduler that production uses: `make simulate` prints its figures.

Three people submit a thousand runs to eight GPUs and two CPUs: one drops five hundred at once, the others send theirs
over six hours. A tenth of the GPU runs takes two or four GPUs together, one in fifty takes one to four GPUs of each of
two hosts, and one run in twenty is urgent. Durations are known to within a factor, as measured ones are; every tenth is
unknown beforehand.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from server.queue.cluster import Cluster, Device, Host, Queued, Running
from server.queue.schedule import rank
from server.queue.simulate import Simulation, Start

HOURS = 3600.0
HALF_LIFE_S = 6 * HOURS
LIMIT_S = 2 * HOURS
PEOPLE = {1: "ann", 2: "bob", 3: "cem"}
HOSTS = (
    Host(worker_id=1, devices=tuple(Device(name=f"cuda:{n}") for n in range(4))),
    Host(worker_id=2, devices=tuple(Device(name=f"cuda:{n}") for n in range(4))),
    Host(worker_id=3, devices=(Device(name="cpu", slots=2),)),
)


@dataclass
class Day:
    """What happened: starts in order, how long runs took, and since when a run was at the head of its queue."""

    starts: list[Start] = field(default_factory=list)
    took_s: dict[int, float] = field(default_factory=dict)
    headed_at: dict[int, float] = field(default_factory=dict)
    num_runs: int = 0

    def wait_s(self, start: Start) -> float:
        return start.at_s - start.run.created_s

    def wait_at_head_s(self, start: Start) -> float:
        """How long nobody was before it until its start: since it was marked to stay first, or since it came there."""
        since_s = start.run.reserved_s
        if since_s is None:
            since_s = self.headed_at.get(start.run.run_id, start.at_s)
        return start.at_s - min(start.at_s, since_s)

    def end_s(self, start: Start) -> float:
        return start.at_s + self.took_s[start.run.run_id]

    @property
    def longest_s(self) -> float:
        return max(self.took_s.values())


def simulate(seed: int = 0) -> Day:
    """Run the day to the end of its last run."""
    arrivals, took_s = _submissions(random.Random(seed))
    day = Day(took_s=took_s, num_runs=len(arrivals))
    begin = Cluster(now_s=0.0, hosts={host.worker_id: host for host in HOSTS})
    simulation = Simulation(
        begin, (), duration_of=lambda run: took_s[run.run_id], ends_of=_never, half_life_s=HALF_LIFE_S
    )
    for start in simulation.run(arrivals):
        day.starts.append(start)
        heads = simulation.backlog.heads()
        for kind in ("cuda", "cpu"):
            of_kind = rank([run for run in heads if run.device == kind], simulation.cluster())
            for run in of_kind[1:]:
                day.headed_at.pop(run.run_id, None)  # shares have changed
            if of_kind:
                day.headed_at.setdefault(of_kind[0].run_id, simulation.now_s)
    return day


def _never(run: Running) -> float:
    raise AssertionError(f"nothing runs when the day begins, {run} does")


def _submissions(chance: random.Random) -> tuple[list[Queued], dict[int, float]]:
    """A thousand runs by age, and what each really takes."""
    when = [(1, 0.0)] * 500 + [(2, chance.uniform(0, 6 * HOURS)) for _ in range(300)]
    when += [(3, chance.uniform(0, 6 * HOURS)) for _ in range(200)]
    gangs = random.Random(chance.random())
    runs, took_s = [], {}
    for run_id, (user_id, created_s) in enumerate(sorted(when, key=lambda item: item[1]), start=1):
        device = "cuda" if chance.random() < 0.7 else "cpu"
        wide = device == "cuda" and chance.random() < 0.1
        gang = device == "cuda" and not wide and gangs.random() < 0.035
        took_s[run_id] = duration = min(LIMIT_S, chance.lognormvariate(6.5, 0.6))
        known = chance.random() < 0.9
        runs.append(
            Queued(
                run_id=run_id, user_id=user_id, project_id=1, device=device, created_s=created_s,
                priority=5 if chance.random() < 0.05 else 0, num_hosts=2 if gang else 1,
                num_devices=chance.choice((2, 4)) if wide else gangs.choice((1, 2, 4)) if gang else 1,
                expected_s=duration * chance.uniform(0.8, 1.2) if known else None, limit_s=LIMIT_S,
            )
        )  # fmt: skip
    return runs, took_s


def num_devices(start: Start) -> int:
    """How many devices the run holds, over all of its hosts."""
    return start.run.num_devices * start.run.num_hosts


def holds(start: Start, worker_id: int, device: str) -> bool:
    """Whether the run is on that device."""
    return device in (start.devices if start.worker_id == worker_id else start.others.get(worker_id, ()))


Spans = list[tuple[float, float]]


def contended(day: Day, kind: str) -> Spans:
    """When each of the three had a run waiting for this kind of device."""
    common: Spans = [(0.0, math.inf)]
    for user_id in PEOPLE:
        own = [start for start in day.starts if start.run.user_id == user_id and start.run.device == kind]
        common = _both(common, _union([(start.run.created_s, start.at_s) for start in own]))
    return common


def _union(spans: Spans) -> Spans:
    joined: Spans = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif end > begin:
            joined.append((begin, end))
    return joined


def _both(some: Spans, others: Spans) -> Spans:
    overlaps = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return [(begin, end) for begin, end in overlaps if begin < end]


def length_s(spans: Spans) -> float:
    return sum(end - begin for begin, end in spans)


def shares(day: Day, kind: str) -> dict[str, float]:
    """Which part of the device time of runs that began while all three waited each person had."""
    spans = contended(day, kind)
    used: dict[int, float] = defaultdict(float)
    for start in day.starts:
        if start.run.device == kind and any(begin <= start.at_s < end for begin, end in spans):
            used[start.run.user_id] += day.took_s[start.run.run_id] * num_devices(start)
    return {name: used[user_id] / sum(used.values()) for user_id, name in PEOPLE.items()}


def utilisation(day: Day, kind: str) -> float:
    """How much of the devices was in use until the queue of this kind ran dry."""
    of_kind = [start for start in day.starts if start.run.device == kind]
    dry_s = max(start.at_s for start in of_kind)
    used = sum((min(dry_s, day.end_s(start)) - start.at_s) * num_devices(start) for start in of_kind)
    slots = sum(device.slots for host in HOSTS for device in host.devices if device.kind == kind)
    return used / (slots * dry_s)


def report(day: Day) -> list[str]:
    """The figures, as lines."""
    lines = [f"{len(day.starts)} of {day.num_runs} runs started; the longest took {day.longest_s / 60:.0f} min", ""]
    for kind in ("cuda", "cpu"):
        spelled = ", ".join(f"{name} {share:.1%}" for name, share in shares(day, kind).items())
        contended_min = length_s(contended(day, kind)) / 60
        lines.append(f"{kind:4}: all three waited for {contended_min:.0f} min; device time went to {spelled}")
        lines.append(f"      {utilisation(day, kind):.1%} in use until its queue ran dry")
    lines += ["", f"{'':28}{'runs':>6}{'median wait':>13}{'longest wait':>14}{'longest at the head':>21}"]
    for title, starts in groups(day):
        waits = [day.wait_s(start) for start in starts]
        at_head = max(day.wait_at_head_s(start) for start in starts)
        lines.append(
            f"{title:28}{len(starts):6}{median(waits) / 60:9.1f} min{max(waits) / 60:10.1f} min{at_head / 60:17.1f} min"
        )
    return lines


def groups(day: Day) -> Iterable[tuple[str, list[Start]]]:
    """The runs of each person, urgent ones, those on a CPU, on one, two and four GPUs, and those on two hosts."""
    for user_id, name in PEOPLE.items():
        yield name, [start for start in day.starts if start.run.user_id == user_id]
    yield "urgent (priority 5)", [start for start in day.starts if start.run.priority]
    yield "on a CPU", [start for start in day.starts if start.run.device == "cpu"]
    for num in (1, 2, 4):
        on_gpus = [start for start in day.starts if start.run.device == "cuda" and start.run.num_hosts == 1]
        yield f"on {num} GPU{'s' if num > 1 else ''}", [start for start in on_gpus if start.run.num_devices == num]
    yield "on two hosts", [start for start in day.starts if start.run.num_hosts == 2]


if __name__ == "__main__":
    print("\n".join(report(simulate())))
