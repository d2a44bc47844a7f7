"""Figures of queue and claims for Prometheus."""

from __future__ import annotations

from queue_rows import Queue
from sqlalchemy.orm import Session

from server.db.engine import Database
from server.health.prometheus import exposition
from server.queue.claim import claim
from server.queue.clock import store_now
from server.queue.finish import finish


def figures(session: Session) -> dict[str, float]:
    samples = [line for line in exposition(session, 15, "0").splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in samples)}


def test_queue_claims_and_waits_are_counted(any_database: Database) -> None:
    with any_database.write() as session:
        queue = Queue(session)
        before = figures(session)
        assert before["ampboard_claims_hour"] == 0
        assert 'ampboard_queue_wait_seconds{quantile="0.5"}' not in before
        for run_id in queue.experiment(3):
            queue.run(run_id).created_at = store_now(session)
        session.flush()
        first = claim(session, 1, ["cpu"], 15)
        assert first is not None
        finish(session, first.run_id, 1, "completed")
        assert claim(session, 1, ["cpu"], -5) is not None, "its lease has run out"
        after = figures(session)
    assert after['ampboard_queue_runs{device="cpu"}'] == 1
    assert after['ampboard_attempts{outcome="completed"}'] == 1
    assert after['ampboard_attempts{outcome="running"}'] == 1
    assert after["ampboard_claims_hour"] == 2
    assert 0 <= after['ampboard_queue_wait_seconds{quantile="0.95"}'] < 60
    assert after["ampboard_leases_expired"] == 1
