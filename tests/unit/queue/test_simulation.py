"""A day of a team's queue: fair shares, priorities and no starvation, by the scheduler that production uses."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pytest
from simulated_queue import HOSTS, PEOPLE, Day, groups, holds, report, shares, simulate, utilisation


@pytest.fixture(scope="module", params=[0, 1])
def day(request: pytest.FixtureRequest) -> Day:
    return simulate(request.param)


def test_every_run_starts_once_on_devices_that_nobody_else_holds(day: Day) -> None:
    assert Counter(start.run.run_id for start in day.starts) == dict.fromkeys(range(1, 1001), 1)
    slots = {(host.worker_id, device.name): device.slots for host in HOSTS for device in host.devices}
    for holder, num_slots in slots.items():
        marks = []
        for start in day.starts:
            if holds(start, *holder):
                marks += [(start.at_s, 1), (day.end_s(start), -1)]
        held = 0
        for _, change in sorted(marks):  # ends before starts at one moment
            held += change
            assert 0 <= held <= num_slots


def test_a_run_on_two_hosts_has_its_devices_on_both_from_its_start(day: Day) -> None:
    """Nothing is held by halves: two of them never wait for each other."""
    on_two = [start for start in day.starts if start.run.num_hosts == 2]
    assert len(on_two) >= 10
    for start in on_two:
        assert {start.worker_id, *start.others} == {1, 2}
        assert [len(devices) for devices in (start.devices, *start.others.values())] == [start.run.num_devices] * 2


def test_device_time_is_shared_evenly_while_all_want_some(day: Day) -> None:
    for kind, slack in (("cuda", 0.02), ("cpu", 0.06)):
        for name, share in shares(day, kind).items():
            assert abs(share - 1 / 3) < slack, (kind, name, share)


def test_who_asks_for_little_waits_little(day: Day) -> None:
    waits = {title: median(day.wait_s(start) for start in starts) for title, starts in groups(day)}
    ann, bob, cem = (waits[name] for name in PEOPLE.values())
    assert cem < bob < ann, "cem wants least, ann most"
    assert waits["urgent (priority 5)"] < cem


def test_nobody_waits_at_the_head_longer_than_the_longest_run(day: Day) -> None:
    assert max(day.wait_at_head_s(start) for start in day.starts) <= day.longest_s


def test_priorities_go_first_within_each_owner(day: Day) -> None:
    urgent = [start for start in day.starts if start.run.priority]
    assert max(day.wait_s(start) for start in urgent) <= 2 * day.longest_s


def test_reservations_cost_few_device_hours(day: Day) -> None:
    assert utilisation(day, "cuda") > 0.93
    assert utilisation(day, "cpu") > 0.98


def test_the_report_tells_it_all(day: Day) -> None:
    text = "\n".join(report(day))
    assert "1000 of 1000 runs started" in text
    assert all(title in text for title, _ in groups(day))
