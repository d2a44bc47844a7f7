"""Which run is next: the pure decision, on rows made up for the purpose."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from amp_core.config import parse_recipe
from server.queue.cluster import Cluster, Device, Host, Limits, Queued, Running
from server.queue.needs import Needs, needs_of, parse_needs
from server.queue.schedule import decide, over_limit, rank

GPU = frozenset({"bf16", "tf32"})
OLD_GPU = Host(worker_id=1, devices=(Device(name="cuda:0", memory_bytes=16 << 30), Device(name="cpu")))
TWO_GPUS = Host(
    worker_id=2,
    devices=tuple(Device(name=f"cuda:{n}", abilities=GPU, memory_bytes=80 << 30) for n in range(2)),
    labels=frozenset({"fast"}),
)


def cluster(*hosts: Host, running: tuple[Running, ...] = (), now_s: float = 0.0) -> Cluster:
    return Cluster(now_s=now_s, hosts={host.worker_id: host for host in hosts}, running=running)


def queued(run_id: int, user_id: int = 1, device: str = "cuda", **fields: object) -> Queued:
    given = {"created_s": float(run_id), "project_id": 1, **fields}
    return Queued(run_id=run_id, user_id=user_id, device=device, **given)  # type: ignore[arg-type]  # a test's fields


def running(run_id: int, worker_id: int = 2, user_id: int = 1, **fields: object) -> Running:
    given = {"started_s": 0.0, "project_id": 1, "kind": "cuda", **fields}
    return Running(run_id=run_id, user_id=user_id, worker_id=worker_id, **given)  # type: ignore[arg-type]


def chosen(waiting: list[Queued], state: Cluster, host: Host, free: tuple[Device, ...] | None = None) -> int | None:
    choice = decide(waiting, state, host.worker_id, host.devices if free is None else free).choice
    return choice.run.run_id if choice is not None else None


def test_priority_then_least_usage_then_age() -> None:
    state = replace(cluster(TWO_GPUS), usage={(1, "cuda"): 500.0, (2, "cuda"): 20.0, (3, "cpu"): 9000.0})
    waiting = [queued(1, 1), queued(2, 2), queued(3, 2), queued(4, 3), queued(5, 1, priority=1)]
    assert [run.run_id for run in rank(waiting, state)] == [5, 4, 2, 3, 1], "usage of CPUs does not count for GPUs"


def test_what_runs_now_counts_as_used_from_its_start() -> None:
    state = cluster(TWO_GPUS, running=(running(9, user_id=1, expected_s=100.0),), now_s=0.1)
    assert [run.run_id for run in rank([queued(1, 1), queued(2, 2)], state)] == [2, 1]


def test_a_run_waits_for_a_device_with_what_it_needs() -> None:
    state = cluster(OLD_GPU, TWO_GPUS)
    needs = needs_of([parse_recipe("bf16"), parse_recipe("fp32")], "cuda", labels=["fast"], memory_bytes=32 << 30)
    assert parse_needs(needs.spell()) == needs
    assert str(needs) == "bf16, the label fast, 32 GiB of memory"
    demanding, plain = queued(1, needs=needs), queued(2)
    assert chosen([demanding, plain], state, OLD_GPU) == 2
    assert chosen([demanding, plain], state, TWO_GPUS) == 1
    assert chosen([demanding], replace(state, hosts={2: replace(TWO_GPUS, labels=frozenset())}), TWO_GPUS) is None
    assert needs_of([parse_recipe("bf16")], "cpu") == Needs(), "a CPU computes every format"


def test_memory_that_is_free_now_is_what_counts() -> None:
    needy = queued(1, needs=Needs(memory_bytes=40 << 30))
    free = tuple(replace(device, free_bytes=30 << 30) for device in TWO_GPUS.devices)
    assert chosen([needy, queued(2)], cluster(TWO_GPUS), TWO_GPUS, free) == 2


def test_several_devices_come_together_or_not_at_all() -> None:
    state = cluster(TWO_GPUS)
    choice = decide([queued(1, num_devices=2)], state, 2, TWO_GPUS.devices).choice
    assert choice is not None
    assert choice.devices == ("cuda:0", "cuda:1")
    assert chosen([queued(1, num_devices=3)], state, TWO_GPUS) is None


@pytest.mark.parametrize(
    ("expected_s", "limit_s", "goes_first"),
    [
        (30.0, math.inf, True),
        (90.0, math.inf, False),
        (None, 90.0, True),
        (None, math.inf, False),
        (None, 101.0, False),
    ],
)
def test_others_go_before_a_reservation_only_if_they_end_by_then(
    expected_s: float | None, limit_s: float, goes_first: bool
) -> None:
    busy = running(9, expected_s=100.0)
    state = cluster(TWO_GPUS, running=(busy,))
    wide, small = queued(1, num_devices=2), queued(2, expected_s=expected_s, limit_s=limit_s)
    assert chosen([wide, small], state, TWO_GPUS, TWO_GPUS.devices[1:]) == (2 if goes_first else None)


def test_devices_that_a_reservation_does_not_need_are_given_away() -> None:
    host = replace(TWO_GPUS, devices=(*TWO_GPUS.devices, replace(TWO_GPUS.devices[0], name="cuda:2")))
    state = cluster(host, running=(running(8, expected_s=100.0), running(9, expected_s=200.0)))
    waiting = [queued(1, num_devices=2), queued(2)]
    assert chosen(waiting, state, host, host.devices[2:]) is None, "the free one and the next are the reservation"
    more = replace(host, devices=(*host.devices, replace(TWO_GPUS.devices[0], name="cuda:3")))
    later = cluster(more, running=(running(7, expected_s=50.0), *state.running))
    assert chosen([queued(1, num_devices=2), queued(2)], later, more, more.devices[3:]) is None
    spare = replace(later, running=(running(7, expected_s=50.0, num_devices=3),))
    assert chosen([queued(1, num_devices=2), queued(2)], spare, more, more.devices[3:]) == 2


def test_a_reservation_is_made_where_the_run_can_start_first() -> None:
    other = replace(TWO_GPUS, worker_id=3)
    busy = (running(8, worker_id=2, expected_s=300.0), running(9, worker_id=3, expected_s=60.0))
    state = cluster(TWO_GPUS, other, running=busy)
    waiting = [queued(1, num_devices=2), queued(2)]
    assert chosen(waiting, state, TWO_GPUS, TWO_GPUS.devices[1:]) == 2, "host 3 keeps its devices for the wide one"
    assert chosen(waiting, state, other, other.devices[1:]) is None


def test_a_run_that_must_be_alone_empties_its_host_and_is_not_joined() -> None:
    host = Host(worker_id=5, devices=(Device(name="cpu", slots=2),))
    free = (Device(name="cpu"),)
    busy = running(9, worker_id=5, kind="cpu", expected_s=10.0)
    waiting = [queued(1, device="cpu", alone=True), queued(2, device="cpu")]
    assert chosen(waiting, cluster(host, running=(busy,)), host, free) is None
    assert chosen(waiting, cluster(host), host, (*free, *free)) == 1
    assert chosen(waiting[1:], cluster(host, running=(replace(busy, alone=True),)), host, free) is None


def test_limits_hold_runs_back_and_block_nobody_else() -> None:
    state = replace(
        cluster(TWO_GPUS, running=(running(9, user_id=1, project_id=7),)),
        limits=Limits(per_user=1, per_project=5, of_project={7: 1}),
    )
    waiting = [queued(1, user_id=1, priority=9), queued(2, user_id=2, project_id=7), queued(3, user_id=2)]
    assert chosen(waiting, state, TWO_GPUS, TWO_GPUS.devices[1:]) == 3
    assert over_limit(waiting[0], state) == "its owner has 1 runs at work, of 1 allowed"
    assert over_limit(waiting[1], state) == "its project has 1 runs at work, of 1 allowed"
    assert over_limit(waiting[2], state) is None


def test_the_end_of_a_run_is_told_by_its_progress_first() -> None:
    run = running(1, expected_s=100.0, limit_s=1000.0)
    assert run.ends_s(10.0) == 100.0
    assert replace(run, progress=0.5).ends_s(100.0) == 200.0
    assert replace(run, expected_s=None).ends_s(10.0) == 1000.0
    assert run.ends_s(200.0) == 220.0, "it is overdue: some more is expected"


def test_a_run_that_came_first_stays_first_until_it_starts() -> None:
    state = cluster(TWO_GPUS, running=(running(9, user_id=3, expected_s=100.0),))
    wide, other = queued(1, user_id=1, num_devices=2), queued(2, user_id=2)
    decision = decide([wide, other], state, 2, TWO_GPUS.devices[1:])
    assert (decision.choice, decision.first) == (None, wide)
    shares_changed = replace(state, usage={(1, "cuda"): 50.0})
    assert chosen([wide, other], shares_changed, TWO_GPUS, TWO_GPUS.devices[1:]) == 2
    held = replace(wide, reserved_s=0.0)
    assert chosen([held, other], shares_changed, TWO_GPUS, TWO_GPUS.devices[1:]) is None
    urgent = replace(other, priority=1)
    assert chosen([held, urgent], shares_changed, TWO_GPUS, TWO_GPUS.devices[1:]) == 2, "priority goes before it"
