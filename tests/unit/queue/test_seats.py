"""Seats of a run on several hosts: reserved together, taken one by one, held under leases, closed together."""

from __future__ import annotations

from datetime import timedelta

import pytest
from queue_rows import Queue
from sqlalchemy import select

from server.db.engine import Database
from server.db.errors import LeaseLost
from server.db.tables import Attempt, Seat
from server.queue.cancel import cancel_run
from server.queue.claim import ClaimedRun, claim
from server.queue.finish import finish
from server.queue.lease import renew
from server.queue.policy import Policy
from server.queue.reap import lose, reap, release
from server.queue.seats import broken_of, end_seat, over_of, renew_reserved, seat_states
from server.queue.snapshot import read_cluster
from server.queue.usage import charge_ended

LEASE_S = 15.0


@pytest.fixture
def gang(queue: Queue) -> int:
    """A queued run on two hosts, and two workers on two machines."""
    (run_id,) = queue.experiment()
    queue.run(run_id).num_hosts = 2
    queue.worker(2).host = "another"
    queue.session.flush()
    return run_id


def take(queue: Queue, worker_id: int, at_s: float = 1, devices: tuple[str, ...] = ("cpu",)) -> ClaimedRun | None:
    return claim(queue.session, worker_id, devices, LEASE_S, queue.at(at_s), endpoint=lambda: "10.0.0.1:29500")


def begin(queue: Queue, at_s: float = 1) -> None:
    """Both hosts have begun; worker 1 is the first."""
    assert take(queue, 1, at_s) is not None
    assert take(queue, 2, at_s) is not None


def seats(queue: Queue) -> list[tuple[int, int, str, str | None]]:
    rows = queue.session.execute(
        select(Seat).order_by(Seat.attempt, Seat.node).execution_options(populate_existing=True)
    )
    return [(seat.attempt, seat.worker_id, seat.state, seat.outcome) for seat in rows.scalars()]


def test_a_claim_reserves_every_seat_and_the_other_worker_takes_its_own(queue: Queue, gang: int) -> None:
    first = take(queue, 1)
    assert first is not None
    assert first.gang is not None
    assert (first.run_id, first.gang.node, first.gang.num_hosts, first.gang.endpoint) == (gang, 0, 2, "10.0.0.1:29500")
    assert seats(queue) == [(1, 1, "taken", None), (1, 2, "reserved", None)]
    second = take(queue, 2, 3)
    assert second is not None
    assert second.gang is not None
    assert (second.run_id, second.attempt, second.gang.node, second.devices) == (gang, 1, 1, ("cpu",))
    assert second.gang.endpoint == first.gang.endpoint
    assert seats(queue) == [(1, 1, "taken", None), (1, 2, "taken", None)]
    assert take(queue, 2, 4) is None
    assert (queue.run(gang).attempt, queue.run(gang).worker_id) == (1, 1)


def test_one_host_is_not_enough(queue: Queue, gang: int) -> None:
    queue.worker(2).draining = True
    queue.session.flush()
    assert take(queue, 1) is None
    assert seats(queue) == []
    assert queue.run(gang).state == "queued"


def test_a_seat_goes_before_everything_else_and_waits_for_its_device(queue: Queue, gang: int) -> None:
    assert take(queue, 1) is not None
    (urgent,) = queue.experiment(priority=9, device="auto")
    (gpu,) = queue.experiment(device="cuda")
    queue.gives(2, {"device": "cpu", "kind": "cpu"}, {"device": "cuda:0", "kind": "cuda"})
    other = take(queue, 2, 2, devices=("cuda:0",))
    assert other is not None
    assert other.run_id == urgent, "its CPU is not free yet; its GPU is not what the seat needs"
    seat = take(queue, 2, 3)
    assert seat is not None
    assert seat.run_id == gang
    assert queue.run(gpu).state == "queued"


def test_a_worker_that_is_drained_meanwhile_still_takes_its_seat(queue: Queue, gang: int) -> None:
    assert take(queue, 1) is not None
    queue.worker(2).draining = True
    queue.session.flush()
    seat = take(queue, 2)
    assert seat is not None
    assert seat.run_id == gang


def test_each_seat_has_a_lease_of_its_own(queue: Queue, gang: int) -> None:
    begin(queue)
    renewed = renew(queue.session, 2, [(gang, 1)], LEASE_S, queue.at(10))
    assert renewed.lost == frozenset()
    assert renew(queue.session, 1, [(gang, 1)], LEASE_S, queue.at(10)).lost == frozenset()
    assert reap(queue.session, queue.at(20)) == []
    assert renew(queue.session, 1, [(gang, 1)], LEASE_S, queue.at(20)).lost == frozenset()
    (lost,) = reap(queue.session, queue.at(26))
    assert (lost.run_id, lost.state) == (gang, "queued")
    reason = queue.run(gang).reason
    assert reason is not None
    assert "Worker host-2, host 2 of 2, stopped answering during attempt 1" in reason["message"]
    assert seats(queue) == [(1, 1, "ended", "lost"), (1, 2, "ended", "released")]
    for worker_id in (1, 2):
        assert renew(queue.session, worker_id, [(gang, 1)], LEASE_S, queue.at(27)).lost == {(gang, 1)}
    for worker_id in (1, 2):
        queue.worker(worker_id).heartbeat_at = queue.at(29)
    queue.session.flush()
    begin(queue, 30)
    assert queue.run(gang).attempt == 2


def test_the_first_host_s_lease_ends_the_others_too(queue: Queue, gang: int) -> None:
    begin(queue)
    assert renew(queue.session, 2, [(gang, 1)], LEASE_S, queue.at(10)).lost == frozenset()
    (lost,) = reap(queue.session, queue.at(20))
    assert lost.state == "queued"
    assert "Worker host-1 stopped answering" in (queue.run(gang).reason or {})["message"]
    assert over_of(queue.session, [(gang, 1)]) == {(gang, 1)}


def test_a_seat_that_a_dead_worker_never_takes_costs_no_attempt(queue: Queue, gang: int) -> None:
    queue.run(gang).max_attempts = 1
    queue.worker(2).heartbeat_at = queue.at(0)
    queue.session.flush()
    assert take(queue, 1, 1) is not None
    assert renew(queue.session, 1, [(gang, 1)], LEASE_S, queue.at(10)).lost == frozenset()
    (lost,) = reap(queue.session, queue.at(17))
    assert (lost.state, queue.run(gang).max_attempts) == ("queued", 2)
    assert "did not take its seat" in (queue.run(gang).reason or {})["message"]


def test_a_seat_that_a_live_worker_does_not_take_costs_one(queue: Queue, gang: int) -> None:
    queue.run(gang).max_attempts = 1
    queue.session.flush()
    assert take(queue, 1, 1) is not None
    queue.worker(2).heartbeat_at = queue.at(16)
    assert renew(queue.session, 1, [(gang, 1)], LEASE_S, queue.at(10)).lost == frozenset()
    (lost,) = reap(queue.session, queue.at(17))
    assert lost.state == "failed", "or it would be tried for ever"


def test_how_a_seat_ended_is_known_to_the_first_host(queue: Queue, gang: int) -> None:
    begin(queue)
    reason = {"kind": "exception", "message": "ValueError: no"}
    assert broken_of(queue.session, [(gang, 1)]) == frozenset()
    end_seat(queue.session, gang, 1, 1, "failed", reason, 1, "its last words", queue.at(5))
    assert broken_of(queue.session, [(gang, 1)]) == {(gang, 1)}
    (state,) = seat_states(queue.session, gang, 1)
    assert (state.worker, state.outcome, state.reason, state.is_open) == ("host-2", "failed", reason, False)
    with pytest.raises(LeaseLost):
        end_seat(queue.session, gang, 1, 1, "completed", None, 0, "", queue.at(6))
    finish(queue.session, gang, 1, "failed", reason, 1, queue.at(7))
    assert seats(queue) == [(1, 1, "ended", "failed"), (1, 2, "ended", "failed")]
    with pytest.raises(LeaseLost):
        end_seat(queue.session, gang, 1, 1, "completed", None, 0, "", queue.at(8))


def test_an_attempt_that_its_first_host_calls_lost_is_queued_again(queue: Queue, gang: int) -> None:
    begin(queue)
    lost = lose(queue.session, gang, 1, {"kind": "lost", "message": "gone"}, -9, queue.at(9))
    assert (lost.state, queue.run(gang).worker_id) == ("queued", None)
    begin(queue, 10)
    assert lose(queue.session, gang, 2, {"kind": "lost", "message": "gone"}, -9, queue.at(19)).state == "failed"
    with pytest.raises(LeaseLost):
        lose(queue.session, gang, 2, {"kind": "lost", "message": "gone"}, -9, queue.at(20))


def test_a_lost_attempt_that_was_to_be_cancelled_is_cancelled(queue: Queue, gang: int) -> None:
    begin(queue)
    cancel_run(queue.session, gang, "ann", queue.at(3))
    assert renew(queue.session, 2, [(gang, 1)], LEASE_S, queue.at(4)).cancelled == {gang}, "every seat is told"
    assert lose(queue.session, gang, 1, {"kind": "lost", "message": "gone"}, -9, queue.at(9)).state == "cancelled"


def test_a_worker_that_stops_gives_back_the_runs_it_only_sits_in(queue: Queue, gang: int) -> None:
    queue.run(gang).max_attempts = 1
    begin(queue)
    (lost,) = release(queue.session, 2, "Worker host-2 was stopped.", charged=False, now=queue.at(5))
    assert (lost.state, queue.run(gang).max_attempts) == ("queued", 2)


def test_a_seat_that_waits_outlives_a_restart_of_its_worker_but_not_its_stop(queue: Queue, gang: int) -> None:
    assert take(queue, 1) is not None
    assert release(queue.session, 2, "Worker host-2 was restarted.", now=queue.at(2)) == []
    assert seats(queue) == [(1, 1, "taken", None), (1, 2, "reserved", None)]
    (lost,) = release(queue.session, 2, "Worker host-2 was stopped.", charged=False, now=queue.at(3))
    assert (lost.run_id, lost.state) == (gang, "queued")


def test_a_live_worker_keeps_its_seat_until_its_device_is_free_within_reason(queue: Queue, gang: int) -> None:
    assert take(queue, 1) is not None
    for at_s in range(10, 90, 10):
        renew_reserved(queue.session, 2, LEASE_S, queue.at(at_s))
        assert renew(queue.session, 1, [(gang, 1)], LEASE_S, queue.at(at_s)).lost == frozenset()
        if reap(queue.session, queue.at(at_s)):
            break
    assert at_s == 80, "a minute, and a lease"
    assert "did not take its seat" in (queue.run(gang).reason or {})["message"]


def test_the_scheduler_and_the_accounts_see_every_seat(queue: Queue, gang: int) -> None:
    begin(queue)
    (running,) = read_cluster(queue.session, queue.at(2), Policy(), {}).running
    assert (running.worker_id, running.others) == (1, (2,))
    assert running.charge_s(queue.at(101).timestamp()) == 200.0
    finish(queue.session, gang, 1, "completed", None, 0, queue.at(101))
    assert charge_ended(queue.session, queue.at(101), 86_400.0) == {(1, "cpu"): pytest.approx(200.0)}


def test_two_claims_at_once_never_share_a_seat(queue: Queue, gang: int) -> None:
    (other,) = queue.experiment()
    queue.run(other).num_hosts = 2
    queue.session.flush()
    first, second, third = take(queue, 2, 1), take(queue, 1, 1), take(queue, 1, 2)
    assert first is not None
    assert second is not None
    assert (first.run_id, second.run_id, third) == (gang, gang, None)
    assert queue.run(other).state == "queued"
    assert [attempt.worker_name for attempt in queue.session.scalars(select(Attempt))] == ["host-2"]


@pytest.mark.postgres
def test_the_same_statements_run_on_postgres(postgres: Database) -> None:
    with postgres.write() as session:
        queue = Queue(session)
        (run_id,) = queue.experiment()
        queue.run(run_id).num_hosts = 2
        queue.worker(2).host = "another"
        session.flush()
        begin(queue)
        assert renew(session, 2, [(run_id, 1)], LEASE_S, queue.at(10)).lost == frozenset()
        assert over_of(session, [(run_id, 1)]) == frozenset()
        end_seat(session, run_id, 1, 1, "lost", None, None, "", queue.at(11))
        assert broken_of(session, [(run_id, 1)]) == {(run_id, 1)}
        (lost,) = reap(session, queue.at(10) + timedelta(seconds=20))
        assert lost.state == "queued"
        assert seats(queue) == [(1, 1, "ended", "lost"), (1, 2, "ended", "lost")]
