"""A worker dies in the middle of a run: the next attempt goes on from the last checkpoint the store knows of."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from worker_site import TINY, Site, wait_for

from server.db.tables import Event
from server.queue.cancel import retry_run
from server.queue.pause import pause_run, resume_run

STEPS, EVERY = 150, 20


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        site.add_workload(TINY, "tiny")
        yield site


def payloads(site: Site, run_id: int, kind: str) -> list[dict[str, object]]:
    with site.database.read() as session:
        query = select(Event.payload).where(Event.run_id == run_id, Event.kind == kind)
        return list(session.scalars(query.order_by(Event.attempt, Event.sequence)))


def folder_of(site: Site, run_id: int) -> Path:
    return site.settings.data_dir / "checkpoints" / f"run-{run_id}"


def test_the_next_attempt_goes_on_and_the_history_is_whole(site: Site) -> None:
    worker = site.start_worker()
    (calm_id,) = site.submit("tiny", steps=STEPS, checkpoint_every_steps=EVERY)
    assert site.await_end(calm_id).state == "completed"
    wait_for(lambda: not folder_of(site, calm_id).exists(), "a completed run keeps no checkpoints", 10)

    (run_id,) = site.submit("tiny", steps=STEPS, checkpoint_every_steps=EVERY)
    wait_for(lambda: len(payloads(site, run_id, "checkpointed")) >= 2, "no checkpoint came", 60)
    site.kill(worker)
    site.start_worker()
    run = site.await_end(run_id)
    assert (run.state, run.attempt) == ("completed", 2)
    first, second = payloads(site, run_id, "started")
    assert first["resumed_step"] == 0
    assert int(str(second["resumed_step"])) >= 2 * EVERY
    assert second["not_resumed"] == ""
    assert site.series(run_id) == site.series(calm_id)
    assert run.result is not None
    calm = site.run(calm_id).result
    assert calm is not None
    assert (run.result["steps"], run.result["samples"]) == (STEPS, calm["samples"])
    assert run.result["metrics"] == calm["metrics"]


def test_a_failed_run_that_is_retried_goes_on_too(site: Site) -> None:
    site.start_worker()
    (run_id,) = site.submit("tiny", steps=STEPS, checkpoint_every_steps=EVERY)
    wait_for(lambda: payloads(site, run_id, "checkpointed"), "no checkpoint came", 60)
    (pid,) = site.children()
    os.kill(pid, signal.SIGKILL)
    assert site.await_end(run_id).state == "failed"
    assert folder_of(site, run_id).exists()
    with site.database.write() as session:
        retry_run(session, run_id)
    assert site.await_end(run_id).state == "completed"
    assert int(str(payloads(site, run_id, "started")[-1]["resumed_step"])) >= EVERY
    assert site.series(run_id)[0] == list(range(1, STEPS + 1))


def test_a_paused_run_gives_its_device_away_and_goes_on_bitwise(site: Site) -> None:
    site.start_worker()
    (calm_id,) = site.submit("tiny", steps=STEPS)
    assert site.await_end(calm_id).state == "completed"

    (run_id,) = site.submit("tiny", steps=STEPS)
    wait_for(lambda: site.run(run_id).step >= 10, "no step came", 60)
    with site.database.write() as session:
        assert pause_run(session, run_id) == "running"
    wait_for(lambda: site.run(run_id).state == "paused", "it did not pause", 60)
    paused = site.run(run_id)
    assert (paused.attempt, paused.worker_id) == (1, None)
    (checkpoint,) = payloads(site, run_id, "checkpointed")
    assert checkpoint["step"] == paused.step < STEPS
    (other,) = site.submit("tiny", steps=3)
    assert site.await_end(other).state == "completed", "the device is free for others"

    with site.database.write() as session:
        assert resume_run(session, run_id)
    run = site.await_end(run_id)
    assert (run.state, run.attempt) == ("completed", 2)
    assert [told["resumed_step"] for told in payloads(site, run_id, "started")] == [0, checkpoint["step"]]
    assert site.series(run_id) == site.series(calm_id), "no step was lost, doubled or changed"
    assert run.max_attempts == site.run(calm_id).max_attempts + 1, "a pause costs no attempt"
