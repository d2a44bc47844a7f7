"""The queue's rules: who gets which run, how runs end, what a lost worker and a cancellation do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NoReturn

import pytest
from queue_rows import Queue
from sqlalchemy import select

from server.db.engine import Database
from server.db.errors import LeaseLost, StoreUnavailable
from server.db.tables import Attempt
from server.queue.cancel import cancel_experiment, cancel_run, retry_run
from server.queue.claim import ClaimedRun, claim
from server.queue.durations import expect
from server.queue.finish import finish
from server.queue.lease import hold, renew, stop_requests
from server.queue.pause import pause_run, resume_run
from server.queue.policy import Policy
from server.queue.reap import Reaper, reap, release, stale_queued
from server.queue.usage import charge_ended, usage_at


def take(queue: Queue, at_s: float = 1, worker_id: int = 1, devices: tuple[str, ...] = ("cpu",)) -> ClaimedRun | None:
    return claim(queue.session, worker_id, devices, 15, queue.at(at_s))


def must_take(queue: Queue, at_s: float = 1) -> ClaimedRun:
    claimed = take(queue, at_s)
    assert claimed is not None
    return claimed


def test_priority_goes_before_age_and_age_before_id(queue: Queue) -> None:
    (young,) = queue.experiment(created_s=5)
    (old,) = queue.experiment(created_s=1)
    (urgent,) = queue.experiment(created_s=9, priority=3)
    assert [must_take(queue, 10).run_id for _ in range(3)] == [urgent, old, young]
    assert take(queue, 10) is None


def test_a_run_goes_only_to_a_device_it_fits(queue: Queue) -> None:
    (gpu,) = queue.experiment(device="cuda")
    (any_device,) = queue.experiment(device="auto")
    first = must_take(queue)
    assert first.run_id == any_device
    assert first.devices == ("cpu",)
    assert take(queue) is None
    assert take(queue, devices=()) is None
    queue.gives(2, {"device": "cuda:1", "kind": "cuda"})
    second = take(queue, worker_id=2, devices=("cuda:1",))
    assert second is not None
    assert (second.run_id, second.devices) == (gpu, ("cuda:1",))


def test_a_benchmark_on_a_cpu_waits_until_it_is_alone_and_is_not_overtaken(queue: Queue) -> None:
    queue.gives(1, {"device": "cpu", "kind": "cpu", "slots": 2})
    queue.worker(2).state = "offline"
    (busy,) = queue.experiment()
    must_take(queue)
    (benchmark,) = queue.experiment(created_s=1)
    queue.run(benchmark).kind = "benchmark"
    queue.experiment(created_s=2)
    assert take(queue) is None
    finish(queue.session, busy, 1, "completed", now=queue.at(2))
    assert must_take(queue).run_id == benchmark
    assert take(queue) is None, "nothing computes beside it"
    finish(queue.session, benchmark, 1, "completed", now=queue.at(3))
    assert take(queue) is not None


def test_a_claim_leases_the_run_and_begins_an_attempt(queue: Queue) -> None:
    (run_id,) = queue.experiment()
    claimed = must_take(queue)
    run = queue.run(run_id)
    assert (run.state, run.attempt, run.worker_id, run.lease_expires_at) == ("running", 1, 1, queue.at(16))
    assert claimed.attempt == 1
    attempt = queue.session.scalars(select(Attempt)).one()
    assert (attempt.worker_name, attempt.outcome) == ("host-1", None)
    assert queue.experiment_of(run_id).state == "running"


def test_the_experiment_ends_with_its_last_run(queue: Queue) -> None:
    first, second = queue.experiment(2)
    finish(queue.session, first, must_take(queue).attempt, "completed", now=queue.at(2))
    assert queue.experiment_of(first).state == "running"
    reason = {"kind": "exception", "message": "ValueError: no"}
    finish(queue.session, second, must_take(queue).attempt, "failed", reason, 1, queue.at(3))
    assert queue.run(second).reason == reason
    experiment = queue.experiment_of(first)
    assert (experiment.state, experiment.ended_at) == ("ended", queue.at(3))


def test_only_the_holder_of_the_lease_may_finish(queue: Queue) -> None:
    (run_id,) = queue.experiment()
    must_take(queue)
    with pytest.raises(LeaseLost, match=f"run {run_id} is no longer running attempt 2"):
        finish(queue.session, run_id, 2, "completed")
    finish(queue.session, run_id, 1, "completed")
    with pytest.raises(LeaseLost):
        hold(queue.session, run_id, 1)


def test_renewal_prolongs_and_tells_what_was_lost_and_cancelled(queue: Queue) -> None:
    runs = queue.experiment(3)
    for _ in runs:
        must_take(queue)
    cancel_run(queue.session, runs[1], "ann", queue.at(2))
    finish(queue.session, runs[2], 1, "completed", now=queue.at(2))
    renewal = renew(queue.session, 1, [(run_id, 1) for run_id in runs], 15, queue.at(10))
    assert renewal.lost == {(runs[2], 1)}
    assert renewal.cancelled == {runs[1]}
    assert queue.run(runs[0]).lease_expires_at == queue.at(25)
    assert stop_requests(queue.session, runs).cancelled == {runs[1]}
    assert renew(queue.session, 2, [(runs[0], 1)], 15).lost == {(runs[0], 1)}, "another worker does not hold it"


def test_an_expired_lease_requeues_until_the_attempts_are_used_up(queue: Queue) -> None:
    (run_id,) = queue.experiment()
    must_take(queue, 1)
    assert reap(queue.session, queue.at(15)) == []
    (lost,) = reap(queue.session, queue.at(17))
    assert (lost.run_id, lost.state) == (run_id, "queued")
    assert must_take(queue, 20).attempt == 2
    (lost,) = reap(queue.session, queue.at(40))
    assert lost.state == "failed"
    reason = queue.run(run_id).reason
    assert reason is not None
    assert reason["kind"] == "lost"
    assert "attempt 2 of 2" in reason["message"]
    assert queue.experiment_of(run_id).state == "ended"
    assert [a.outcome for a in queue.session.scalars(select(Attempt))] == ["lost", "lost"]


def test_a_lost_run_that_was_to_be_cancelled_is_cancelled(queue: Queue) -> None:
    (run_id,) = queue.experiment()
    must_take(queue)
    assert cancel_run(queue.session, run_id, "ann", queue.at(2)) == "running"
    (lost,) = reap(queue.session, queue.at(60))
    assert lost.state == "cancelled"


def test_a_restarted_worker_gives_back_only_its_own_runs(queue: Queue) -> None:
    mine, other = queue.experiment(2)
    must_take(queue)
    assert take(queue, worker_id=2) is not None
    (released,) = release(queue.session, 1, "Worker host-1 restarted.", now=queue.at(2))
    assert (released.run_id, released.state) == (mine, "queued")
    assert queue.run(other).state == "running"


def test_an_orderly_stop_costs_no_attempt(queue: Queue) -> None:
    (run_id,) = queue.experiment()
    for _ in range(5):
        must_take(queue)
        (released,) = release(queue.session, 1, "Worker host-1 was stopped.", charged=False)
        assert released.state == "queued"
    assert queue.run(run_id).attempt == 5


def test_cancelling_an_experiment_ends_what_waits_and_asks_what_runs(queue: Queue) -> None:
    running, waiting = queue.experiment(2)
    must_take(queue)
    assert cancel_experiment(queue.session, queue.run(running).experiment_id, "ann", queue.at(5)) == 2
    assert queue.run(waiting).state == "cancelled"
    assert queue.run(waiting).reason == {"kind": "cancelled", "message": "Cancelled by ann."}
    assert queue.experiment_of(running).ended_at is None
    finish(queue.session, running, 1, "cancelled", {"kind": "cancelled", "message": "…"}, now=queue.at(6))
    experiment = queue.experiment_of(running)
    assert (experiment.state, experiment.ended_at) == ("cancelled", queue.at(6))
    assert cancel_experiment(queue.session, experiment.id) == 0
    assert cancel_run(queue.session, running) == "cancelled"


def test_retry_opens_the_experiment_again(queue: Queue) -> None:
    (run_id,) = queue.experiment()
    assert not retry_run(queue.session, run_id)
    finish(queue.session, run_id, must_take(queue).attempt, "failed", {"kind": "exit", "message": "…"})
    queue.experiment_of(run_id).comparison = {"state": "judged"}
    assert retry_run(queue.session, run_id)
    experiment = queue.experiment_of(run_id)
    assert (experiment.state, experiment.ended_at, experiment.comparison) == ("running", None, None)
    assert must_take(queue).attempt == 2


def test_a_reaper_gives_workers_time_after_a_start_a_sleep_and_an_outage(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.write() as session:
        queue = Queue(session)
        (run_id,) = queue.experiment()
        must_take(queue)
    clock = 1000.0
    monkeypatch.setattr("server.queue.reap.time.time", lambda: clock)
    monkeypatch.setattr("server.queue.reap.time.monotonic", lambda: clock)
    monkeypatch.setattr("server.queue.reap.store_now", lambda _: datetime.fromtimestamp(clock + ahead_s, UTC))
    ahead_s = 1.8e9
    reaper = Reaper(database, patience_s=15)

    def rounds(seconds: float) -> list[int]:
        nonlocal clock
        clock += seconds
        return [lost.run_id for lost in reaper.reap()]

    assert rounds(0) == [], "it has just started"
    assert rounds(14) == []
    assert rounds(600) == [], "it slept, and so may have the workers' host"
    assert rounds(10) == []
    with monkeypatch.context() as outage:
        outage.setattr(database, "write", turned_away)
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                rounds(10)
    assert rounds(10) == [], "the store is back only now, however long it was away"
    assert rounds(14) == []
    assert rounds(2) == [run_id]


def test_a_jump_of_the_stores_clock_takes_no_run_from_a_worker_that_renews(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back or forth: whoever renews afterwards keeps its run; a lease of the time before is no protection for ever."""
    clock, ahead_s = 1000.0, 1.8e9
    monkeypatch.setattr("server.queue.reap.time.time", lambda: clock)
    monkeypatch.setattr("server.queue.reap.time.monotonic", lambda: clock)

    def store_now(_: object = None) -> datetime:
        return datetime.fromtimestamp(clock + ahead_s, UTC)

    monkeypatch.setattr("server.queue.reap.store_now", store_now)
    with database.write() as session:
        queue = Queue(session)
        alive, dead = queue.experiment(2)
        for _ in range(2):
            assert claim(session, 1, ["cpu"], 15, store_now()) is not None
    reaper = Reaper(database, patience_s=15)

    def rounds(num: int, *attempts: tuple[int, int]) -> list[int]:
        nonlocal clock
        lost = []
        for _ in range(num):
            clock += 5
            with database.write() as session:
                renew(session, 1, attempts, 15, store_now())
            lost += [reaped.run_id for reaped in reaper.reap()]
        return lost

    assert rounds(5, (alive, 1), (dead, 1)) == []
    ahead_s += 3600
    assert reaper.reap() == [], "every lease has expired by the new clock"
    assert rounds(5, (alive, 1), (dead, 1)) == []
    ahead_s -= 7200
    assert rounds(2, (alive, 1)) == []
    assert rounds(5, (alive, 1)) == [dead], "its lease ends in two hours, and nobody renews it"
    assert rounds(5, (alive, 1)) == []


def turned_away() -> NoReturn:
    raise StoreUnavailable("it is away")


def test_the_doorbell_is_rung_again_for_rows_left_waiting(queue: Queue) -> None:
    queue.experiment(3)
    must_take(queue)
    assert stale_queued(queue.session, 5, queue.at(2)) == 2
    assert stale_queued(queue.session, 5, queue.at(6)) == 0
    assert stale_queued(queue.session, 5, queue.at(8)) == 2


def test_usage_is_charged_once_and_halves(queue: Queue) -> None:
    half_life = Policy(half_life_s=100.0)
    first, _second = queue.experiment(2)
    claimed = claim(queue.session, 1, ["cpu"], 15, queue.at(0), policy=half_life)
    assert claimed is not None
    finish(queue.session, first, 1, "completed", now=queue.at(40))
    assert usage_at(queue.session, queue.at(40), 100.0) == {}, "charged by the next claim"
    assert charge_ended(queue.session, queue.at(140), 100.0) == {(1, "cpu"): 20.0}
    assert charge_ended(queue.session, queue.at(240), 100.0) == {(1, "cpu"): 10.0}


def test_waiting_runs_expect_what_the_first_of_them_took(queue: Queue) -> None:
    first, second = queue.experiment(2)
    must_take(queue, 0)
    finish(queue.session, first, 1, "completed", now=queue.at(40))
    assert queue.run(second).expected_s == 40.0
    later = queue.run(queue.experiment(1)[0])
    later.steps = 20
    expect(queue.session, [later], "w")
    assert later.expected_s == 80.0, "twice the steps"
    expect(queue.session, [later], "another")
    assert later.expected_s == 80.0, "nothing is known of that workload: what was known stays"


def test_a_benchmark_is_expected_to_take_as_long_whatever_its_steps(queue: Queue) -> None:
    first = queue.experiment(1)[0]
    queue.run(first).kind = "benchmark"
    must_take(queue, 0)
    finish(queue.session, first, 1, "completed", now=queue.at(40))
    later = queue.run(queue.experiment(1)[0])
    later.kind, later.steps = "benchmark", 100 * queue.run(first).steps
    expect(queue.session, [later], "w")
    assert later.expected_s == 40.0, "it times blocks of a fixed length"


def test_a_queued_run_pauses_at_once_and_a_running_one_when_it_has_stopped(queue: Queue) -> None:
    running, waiting = queue.experiment(2)
    must_take(queue)
    assert pause_run(queue.session, waiting, queue.at(2)) == "paused"
    assert pause_run(queue.session, running, queue.at(2)) == "running"
    assert renew(queue.session, 1, [(running, 1)], 15, queue.at(3)).paused == {running}
    assert stop_requests(queue.session, [running]).paused == {running}
    finish(queue.session, running, 1, "paused", now=queue.at(4))
    run = queue.run(running)
    assert (run.state, run.worker_id, run.lease_expires_at, run.max_attempts) == ("paused", None, None, 3)
    assert queue.experiment_of(running).state == "running", "it is not over"
    assert take(queue) is None
    assert resume_run(queue.session, running)
    assert not resume_run(queue.session, running)
    assert must_take(queue).attempt == 2


def test_a_run_whose_worker_dies_while_it_pauses_is_paused(queue: Queue) -> None:
    (run_id,) = queue.experiment()
    must_take(queue, 1)
    pause_run(queue.session, run_id, queue.at(2))
    (lost,) = reap(queue.session, queue.at(40))
    assert lost.state == queue.run(run_id).state == "paused"
    assert cancel_run(queue.session, run_id) == "cancelled"
    assert queue.experiment_of(run_id).state == "cancelled"


def test_a_drained_worker_takes_nothing(queue: Queue) -> None:
    queue.experiment()
    queue.worker(1).draining = True
    queue.session.flush()
    assert take(queue) is None
    assert take(queue, worker_id=2) is not None
