"""Which queued run a worker takes next. Pure functions over plain rows: production and simulation call the same ones.

Order: priority, then fair share (who has used least of this kind of device lately), then age. A run that needs several
devices together, several hosts, or a host alone, and that does not fit yet, reserves (`server.queue.reservations`). One
that has come to the first place stays first among its priority, however shares change while it waits for its devices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from server.queue.cluster import Cluster, Device, Host, Queued, has_room, kind_of
from server.queue.reservations import Reservation, other_hosts, reserve

HEADS = 8  # of the runs that differ in nothing but age and priority, only the first few can be next


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The run to start, on which devices of the worker, and with which ``others`` (workers of other hosts)."""

    run: Queued
    devices: tuple[str, ...]
    others: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a worker does: start ``choice`` if there is one. ``first`` came to the first place, and is to stay there."""

    choice: Choice | None
    first: Queued | None = None


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


def decide(queued: Sequence[Queued], cluster: Cluster, worker_id: int, free: Sequence[Device]) -> Decision:
    """What a worker does now with its ``free`` devices (one entry per free slot)."""
    here = cluster.hosts[worker_id]
    held = cluster.held_on(here)
    if any(run.alone for run in held):
        return Decision(choice=None)
    reserved: Reservation | None = None
    first: Queued | None = None
    seen = set[str]()
    before: list[Queued] = []
    for run in rank(queued, cluster, here.preferred_kind):
        if over_limit(run, cluster) is not None or (run.num_hosts > 1 and not cluster.could_run(run)):
            continue
        ahead = tuple(before)
        before.append(run)
        if not here.could_run(run):
            continue
        kind = kind_of(run, here.preferred_kind)
        is_first, seen = kind not in seen, seen | {kind}
        fitting = [device for device in free if here.serves(run, device) and has_room(device, run)]
        fits_here = len(fitting) >= run.num_devices and (not held or not run.alone)
        devices = _devices_beside(run, fitting, reserved, here, cluster.now_s) if fits_here else None
        others = other_hosts(run, ahead, cluster, here) if devices is not None else None
        if devices is not None and others is not None:
            names = tuple(device.name for device in devices)
            return Decision(choice=Choice(run=run, devices=names, others=others), first=first)
        is_wide = run.num_devices > 1 or run.alone or run.num_hosts > 1
        if is_wide and reserved is None:
            reserved = reserve(run, ahead, cluster, here, len(fitting))
            if reserved is not None and is_first and run.reserved_s is None:
                first = run
    return Decision(choice=None, first=first)


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
    run: Queued, fitting: Sequence[Device], reserved: Reservation | None, here: Host, now_s: float
) -> Sequence[Device] | None:
    """Devices for the run that leave the reservation its start; None when it would have to wait for them."""
    if reserved is None or reserved.ends_before(run, now_s):
        return fitting[: run.num_devices]
    if reserved.run.alone:
        return None
    apart = [device for device in fitting if not here.serves(reserved.run, device)]
    shared = [device for device in fitting if here.serves(reserved.run, device)]
    needed = max(0, run.num_devices - len(apart))
    if needed > reserved.num_spare:
        return None
    return [*apart, *shared][: run.num_devices]
