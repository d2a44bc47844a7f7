"""Devices kept for a run that does not fit yet, on one host or on several. Pure functions over `server.queue.cluster`.

EASY backfilling (Lifka, 1995): the run starts at the earliest moment at which enough devices are free, and others go
first there only if they end before, or leave enough. A run on several hosts reserves on those where it can start
first, on all of them from the same moment; it holds nothing before it has everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from server.queue.cluster import Cluster, Host, Queued, kind_of


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Devices of one host kept for ``run`` at ``start_s``; ``num_spare`` of them are left then."""

    run: Queued
    start_s: float
    num_spare: int

    def ends_before(self, run: Queued, now_s: float) -> bool:
        """Whether another run is sure to be over when this one starts."""
        return math.isfinite(run.bound_s) and now_s + run.bound_s <= self.start_s

    @property
    def over_s(self) -> float:
        """When the reserved run is over, once it has started."""
        return self.start_s + self.run.bound_s


def reserve(run: Queued, before: Sequence[Queued], cluster: Cluster, here: Host, num_free: int) -> Reservation | None:
    """The reservation on this host, with ``num_free`` devices free now, if it is where the run can start first.

    ``before`` are the runs before it in the queue, whose reservations on other hosts a run on several respects.
    """
    if run.num_hosts > 1:
        return _reserve_on_several(run, before, cluster, here, num_free)
    start_s, num_spare = _earliest(run, cluster, here, num_free)
    for host in cluster.hosts_for(run):
        if host.worker_id != here.worker_id:
            elsewhere_s, _ = _earliest(run, cluster, host, cluster.num_free(run, host))
            if (elsewhere_s, host.worker_id) < (start_s, here.worker_id):
                return None
    return Reservation(run=run, start_s=start_s, num_spare=num_spare)


def other_hosts(run: Queued, before: Sequence[Queued], cluster: Cluster, here: Host) -> tuple[int, ...] | None:
    """The workers that start a run together with this host, none for a run on one; None if too few can do so now."""
    found: list[Host] = []
    for host in _partners(run, cluster, here):
        if len(found) == run.num_hosts - 1:
            break
        is_elsewhere = all(_are_apart(host, other) for other in found)
        if is_elsewhere and _lets_in(run, before, cluster, host):
            found.append(host)
    return tuple(host.worker_id for host in found) if len(found) == run.num_hosts - 1 else None


def _partners(run: Queued, cluster: Cluster, here: Host) -> list[Host]:
    """Workers on other machines that could take a part of the run, on the same kind of device."""
    kind = kind_of(run, here.preferred_kind)
    return [
        host
        for host in cluster.hosts_for(run)
        if _are_apart(host, here) and kind_of(run, host.preferred_kind) == kind
    ]  # fmt: skip


def _are_apart(one: Host, other: Host) -> bool:
    return (one.machine or one.worker_id) != (other.machine or other.worker_id)


def _lets_in(run: Queued, before: Sequence[Queued], cluster: Cluster, host: Host) -> bool:
    """Whether a host has devices for its part of the run now, beside all that comes before it there."""
    held = cluster.held_on(host)
    if any(other.alone for other in held):
        return False
    num_free = cluster.num_free(run, host)
    reserved: Reservation | None = None
    for other in before:
        if not host.could_run(other) or not _compete(run, other, host):
            continue
        free_for_it = cluster.num_free(other, host)
        if other.num_hosts == 1 and free_for_it >= other.num_devices and not (other.alone and held):
            num_free -= other.num_devices  # it starts there as soon as its worker looks
        elif (other.num_devices > 1 or other.alone or other.num_hosts > 1) and reserved is None:
            reserved = reserve(other, (), cluster, host, free_for_it)
    if num_free < run.num_devices:
        return False
    if reserved is None or reserved.ends_before(run, cluster.now_s):
        return True
    return not reserved.run.alone and run.num_devices <= reserved.num_spare


def _compete(run: Queued, other: Queued, host: Host) -> bool:
    return other.alone or any(host.serves(run, device) and host.serves(other, device) for device in host.devices)


def _reserve_on_several(
    run: Queued, before: Sequence[Queued], cluster: Cluster, here: Host, num_free: int
) -> Reservation | None:
    """The reservation here, if this is one of the machines on which the run can start first."""
    starts = [(_earliest(run, cluster, here, num_free)[0], here.worker_id, here)]
    for host in _partners(run, cluster, here):
        start_s, _ = _earliest(run, cluster, host, cluster.num_free(run, host))
        ahead = _ahead(run, before, cluster, host)
        if ahead is not None and (ahead.run.alone or ahead.num_spare < run.num_devices):
            start_s = max(start_s, ahead.over_s)
        starts.append((start_s, host.worker_id, host))
    chosen: list[Host] = []
    start_s = math.inf
    for earliest_s, _, host in sorted(starts, key=lambda one: one[:2]):
        if len(chosen) < run.num_hosts and all(_are_apart(host, other) for other in chosen):
            chosen.append(host)
            start_s = earliest_s
    if len(chosen) < run.num_hosts or here not in chosen:
        return None
    return Reservation(run=run, start_s=start_s, num_spare=_spare_at(start_s, run, cluster, here, num_free))


def _ahead(run: Queued, before: Sequence[Queued], cluster: Cluster, host: Host) -> Reservation | None:
    """The reservation that a run before this one has on a host, as far as it competes for the same devices."""
    for other in before:
        is_wide = other.num_devices > 1 or other.alone or other.num_hosts > 1
        if is_wide and host.could_run(other) and _compete(run, other, host):
            reserved = reserve(other, (), cluster, host, cluster.num_free(other, host))
            if reserved is not None:
                return reserved
    return None


def _earliest(run: Queued, cluster: Cluster, host: Host, num_free: int) -> tuple[float, int]:
    """When enough devices of the host are free for the run, and how many more than enough are free then."""
    now_s = cluster.now_s
    kind = kind_of(run, host.preferred_kind)
    held = cluster.held_on(host)
    if run.alone:
        return max([now_s, *(r.ends_s(now_s) for r in held)]), 0
    start_s = now_s
    ends = sorted((r.ends_s(now_s), r.num_devices) for r in held if r.kind == kind)
    for end_s, num_devices in ends:
        if num_free >= run.num_devices:
            break
        start_s, num_free = end_s, num_free + num_devices
    return (start_s if num_free >= run.num_devices else math.inf), num_free - run.num_devices


def _spare_at(start_s: float, run: Queued, cluster: Cluster, host: Host, num_free: int) -> int:
    """How many devices the host has left for others once the run has started there at that time."""
    kind = kind_of(run, host.preferred_kind)
    ended = (r.num_devices for r in cluster.held_on(host) if r.kind == kind and r.ends_s(cluster.now_s) <= start_s)
    return num_free + sum(ended) - run.num_devices
