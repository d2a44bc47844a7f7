"""The queue under many claimers, reapers and finishers at once, on SQLite and PostgreSQL."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from queue_rows import Queue
from sqlalchemy import func, select

from server.db.engine import Database
from server.db.errors import LeaseLost, StoreUnavailable
from server.db.tables import Attempt, Experiment, Run
from server.queue.cancel import cancel_experiment
from server.queue.claim import claim
from server.queue.clock import store_now
from server.queue.finish import finish
from server.queue.reap import reap, stale_queued

NUM_CLAIMERS = 8


def together(work: Callable[[int], list[int]]) -> list[int]:
    """What every claimer did, begun at the same moment."""
    barrier = threading.Barrier(NUM_CLAIMERS)

    def begin(number: int) -> list[int]:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(NUM_CLAIMERS) as pool:
        return [item for done in pool.map(begin, range(NUM_CLAIMERS)) for item in done]


@pytest.mark.parametrize("num_runs", [120])
def test_no_run_is_claimed_twice_and_each_experiment_ends_once(any_database: Database, num_runs: int) -> None:
    with any_database.write() as session:
        queue = Queue(session)
        for number in range(num_runs // 4):
            queue.experiment(4, priority=number % 3)

    def drain(number: int) -> list[int]:
        taken = []
        while True:
            with any_database.write() as session:
                claimed = claim(session, 1 + number % 2, ["cpu"], 60)
            if claimed is None:
                return taken
            taken.append(claimed.run_id)
            with any_database.write() as session:
                finish(session, claimed.run_id, claimed.attempt, "completed")

    taken = together(drain)
    assert len(taken) == num_runs
    assert max(Counter(taken).values()) == 1
    with any_database.read() as session:
        assert session.scalar(select(func.count()).select_from(Attempt)) == num_runs
        states = Counter(session.scalars(select(Experiment.state)))
        assert states == {"ended": num_runs // 4}
        assert session.scalar(select(func.count()).where(Experiment.ended_at.is_(None))) == 0


def test_an_expired_lease_is_reaped_once_by_many_reapers(any_database: Database) -> None:
    with any_database.write() as session:
        run_ids = Queue(session).experiment(40)
        for _ in run_ids:
            assert claim(session, 1, ["cpu"], 0.001) is not None
    time.sleep(0.05)

    def sweep(_: int) -> list[int]:
        with any_database.write() as session:
            return [lost.run_id for lost in reap(session)]

    assert sorted(together(sweep)) == run_ids
    with any_database.read() as session:
        assert Counter(session.scalars(select(Run.state))) == {"queued": 40}


def test_cancelling_beside_claims_and_finishes_leaves_nothing_open(any_database: Database) -> None:
    with any_database.write() as session:
        queue = Queue(session)
        run_ids = queue.experiment(60)
        experiment_id = queue.run(run_ids[0]).experiment_id

    def act(number: int) -> list[int]:
        done = []
        for _ in range(8):  # fewer than there are runs: some wait when the last cancellation comes
            try:
                with any_database.write() as session:
                    if number == 0:
                        cancel_experiment(session, experiment_id, "ann")
                        continue
                    claimed = claim(session, 1, ["cpu"], 60)
                if claimed is not None:
                    with any_database.write() as session:
                        finish(session, claimed.run_id, claimed.attempt, "completed")
                    done.append(claimed.run_id)
            except (LeaseLost, StoreUnavailable):  # a deadlock would show as the latter
                done.append(-1)
        return done

    assert -1 not in together(act)
    with any_database.read() as session:
        assert set(session.scalars(select(Run.state))) <= {"completed", "cancelled"}
        assert session.get_one(Experiment, experiment_id).state == "cancelled"
        assert session.get_one(Experiment, experiment_id).ended_at is not None


def test_the_stores_clock_is_aware_and_stale_rows_are_counted_once(any_database: Database) -> None:
    with any_database.write() as session:
        assert store_now(session).tzinfo is not None
        Queue(session).experiment(3)
    with any_database.write() as session:
        assert stale_queued(session, 60) == 3
    with any_database.write() as session:
        assert stale_queued(session, 60) == 0
