"""Runs on several hosts: when they start, what is kept for them, and that two of them never hold half each."""

from __future__ import annotations

import math
from dataclasses import replace

from server.queue.cluster import Cluster, Device, Host, Queued, Running
from server.queue.forecast import forecast, note_of
from server.queue.needs import Needs
from server.queue.schedule import Choice, decide
from server.queue.simulate import Simulation


def host(worker_id: int, num: int = 1, machine: str = "") -> Host:
    devices = tuple(Device(name=f"cuda:{index}") for index in range(num))
    return Host(worker_id=worker_id, devices=devices, machine=machine or f"m{worker_id}")


def cluster(*hosts: Host, running: tuple[Running, ...] = (), now_s: float = 0.0) -> Cluster:
    return Cluster(now_s=now_s, hosts={host.worker_id: host for host in hosts}, running=running)


def queued(run_id: int, num_hosts: int = 1, **fields: object) -> Queued:
    given = {"created_s": float(run_id), "project_id": 1, "user_id": 1, "device": "cuda", **fields}
    return Queued(run_id=run_id, num_hosts=num_hosts, **given)  # type: ignore[arg-type]  # a test's fields


def running(run_id: int, worker_id: int, **fields: object) -> Running:
    given = {"started_s": 0.0, "project_id": 1, "user_id": 2, "kind": "cuda", **fields}
    return Running(run_id=run_id, worker_id=worker_id, **given)  # type: ignore[arg-type]


def choice(waiting: list[Queued], state: Cluster, here: Host, free: int | None = None) -> Choice | None:
    return decide(waiting, state, here.worker_id, here.devices if free is None else here.devices[:free]).choice


def started(waiting: list[Queued], state: Cluster, here: Host, free: int | None = None) -> int | None:
    found = choice(waiting, state, here, free)
    return None if found is None else found.run.run_id


A, B, C = host(1), host(2), host(3)


def test_it_takes_as_many_hosts_as_it_asks_for_together() -> None:
    found = choice([queued(1, 2)], cluster(A, B, C), A)
    assert found is not None
    assert (found.devices, found.others) == (("cuda:0",), (2,))
    every = choice([queued(1, 3)], cluster(A, B, C), B)
    assert every is not None
    assert every.others == (1, 3)
    assert choice([queued(1, 4)], cluster(A, B, C), A) is None
    wide = choice([queued(1, 2, num_devices=2)], cluster(host(1, 2), host(2, 3)), host(1, 2))
    assert wide is not None
    assert (wide.devices, wide.others) == (("cuda:0", "cuda:1"), (2,))


def test_two_workers_of_one_machine_are_one_host() -> None:
    twin = host(2, machine="m1")
    assert choice([queued(1, 2)], cluster(A, twin), A) is None
    found = choice([queued(1, 2)], cluster(A, twin, C), A)
    assert found is not None
    assert found.others == (3,)


def test_a_host_that_is_busy_or_measures_gives_no_seat() -> None:
    assert choice([queued(1, 2)], cluster(A, B, running=(running(9, 2),)), A) is None
    seat = running(9, 3, others=(2,))
    assert choice([queued(1, 2)], cluster(A, B, C, running=(seat,)), A) is None, "a seat holds its host's device"
    two = Host(worker_id=2, devices=(Device(name="cuda:0"), Device(name="cpu")), machine="m2")
    measuring = running(9, 2, kind="cpu", alone=True)
    assert choice([queued(1, 2)], cluster(A, two, running=(measuring,)), A) is None


def test_needs_are_those_of_every_host() -> None:
    labelled = replace(B, labels=frozenset({"fast"}))
    run = queued(1, 2, needs=Needs(labels=frozenset({"fast"})))
    assert choice([run], cluster(A, labelled), labelled) is None
    found = choice([run], cluster(replace(A, labels=frozenset({"fast"})), labelled), labelled)
    assert found is not None
    assert found.others == (1,)


def test_what_waits_for_hosts_keeps_them_and_short_runs_go_first() -> None:
    gang, small = queued(1, 2), queued(2, expected_s=30.0)
    state = cluster(A, B, running=(running(9, 2, expected_s=100.0),))
    assert started([gang, small], state, A) == 2, "it ends before the busy host is free"
    assert started([gang, replace(small, expected_s=90.0)], state, A) is None
    assert started([gang, replace(small, expected_s=None)], state, A) is None
    decision = decide([gang], state, 1, A.devices)
    assert (decision.choice, decision.first) == (None, gang), "it stays first until it starts"
    spacious = host(1, 2)
    assert started([gang, queued(2)], cluster(spacious, B, running=(running(9, 2, expected_s=100.0),)), spacious) == 2


def test_only_the_hosts_where_it_starts_first_are_kept() -> None:
    busy = (running(8, 2, expected_s=50.0), running(9, 3, expected_s=500.0))
    state = cluster(A, B, C, running=busy)
    gang, small = queued(1, 2), queued(2, expected_s=200.0)
    assert started([gang, small], state, A) is None
    assert (
        started(
            [gang, small], replace(state, running=(running(8, 1, expected_s=50.0), running(9, 2, expected_s=60.0))), C
        )
        is None
    )
    far = replace(state, running=(running(8, 1, expected_s=50.0), running(7, 2, expected_s=60.0)))
    four = replace(far, hosts={**far.hosts, 4: host(4), 5: host(5)})
    assert started([queued(1, 2), small], four, host(4)) == 1, "two others are idle"


def test_hosts_too_few_keep_nothing_from_others() -> None:
    assert started([queued(1, 3), queued(2)], cluster(A, B), A) == 2


def test_what_comes_before_on_another_host_goes_first_there() -> None:
    only_b = queued(1, device="cuda", needs=Needs(labels=frozenset({"b"})))
    state = cluster(A, replace(B, labels=frozenset({"b"})), C)
    found = choice([only_b, queued(2, 2)], state, A)
    assert found is not None
    assert found.others == (3,), "host 2 is about to start the run before it"
    assert choice([only_b, queued(2, 2)], cluster(A, replace(B, labels=frozenset({"b"}))), A) is None
    wide_b = replace(only_b, num_devices=2)
    two = replace(host(2, 2), labels=frozenset({"b"}))
    reserved = cluster(A, two, running=(running(9, 2, expected_s=100.0),))
    assert started([wide_b, queued(2, 2)], reserved, A) is None, "its free device is kept for the wide run"
    assert started([wide_b, queued(2, 2, expected_s=20.0)], reserved, A) == 2


def play(hosts: list[Host], waiting: list[Queued], took_s: dict[int, float]) -> Simulation:
    return Simulation(
        cluster(*hosts), waiting, duration_of=lambda run: took_s[run.run_id], ends_of=lambda _: math.inf,
        half_life_s=3600.0,
    )  # fmt: skip


def test_two_gangs_that_need_everything_run_one_after_the_other() -> None:
    """Neither begins before it has both hosts, so neither waits for what the other one holds."""
    waiting = [queued(1, 2), queued(2, 2), queued(3, 2, user_id=2), queued(4, 2, user_id=2)]
    starts = list(play([A, B], waiting, dict.fromkeys(range(1, 5), 10.0)).run())
    assert [start.at_s for start in starts] == [0.0, 10.0, 20.0, 30.0]
    assert all({start.worker_id, *start.others} == {1, 2} for start in starts)


def test_small_runs_that_keep_coming_do_not_starve_a_gang() -> None:
    """One small run comes every second for each host, each takes ten; the gang starts once those ahead are over."""
    small = [queued(100 + n, created_s=float(n), user_id=2, expected_s=10.0) for n in range(400)]
    gang = queued(1, 3, created_s=20.5, expected_s=30.0)
    arrivals = sorted([*small, gang], key=lambda run: run.created_s)
    took = {run.run_id: 10.0 if run.num_hosts == 1 else 30.0 for run in arrivals}
    starts = {start.run.run_id: start for start in play([A, B, C], [], took).run(arrivals)}
    assert len(starts) == 401
    assert starts[1].at_s - gang.created_s <= 20.0
    assert {starts[1].worker_id, *starts[1].others} == {1, 2, 3}


def test_the_reason_says_how_many_hosts_there_are() -> None:
    run = queued(1, 2)
    assert note_of(run, cluster(A)) == "needs 2 hosts with a free device (cuda) each; 1 connected"
    assert note_of(replace(run, num_devices=4), cluster(A, B)) == (
        "needs 2 hosts with 4 free devices (cuda) each; 2 connected, none of them with what it needs: nothing special"
    )
    assert note_of(run, cluster(A, B)) is None


def test_its_turn_is_told_from_the_ends_of_what_runs() -> None:
    busy = (running(8, 1, expected_s=50.0), running(9, 2, others=(3,), expected_s=80.0))
    state = cluster(A, B, C, running=busy)
    found = forecast([queued(1, 2, expected_s=10.0), queued(2, 3, expected_s=10.0), queued(3, 4)], state, 3600.0)
    assert [found[run_id].position for run_id in (1, 2, 3)] == [1, 2, 3]
    starts = [found[run_id].starts_at for run_id in (1, 2)]
    assert [start.timestamp() for start in starts if start is not None] == [80.0, 90.0], "a seat is busy as a run is"
    assert found[3].note == "needs 4 hosts with a free device (cuda) each; 3 connected"
