"""One run on two hosts, here two workers that call their machines by different names, on one store and broker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from sqlalchemy import select
from worker_site import TINY, Site, wait_for

from server.db.tables import Event, Run, Seat, Worker
from server.queue.cancel import cancel_run
from server.queue.pause import pause_run, resume_run

GPT = {"width": 16, "depth": 1, "num_heads": 2, "context": 16, "dropout": 0.0, "batch_size": 8}
STEPS = 60
CALM = TINY.replace("nn.Dropout(0.1), ", "")  # its mask would differ from rank to rank
FAILS = (
    CALM
    + """
    calls = 0

    def loss(self, model, batch):
        import os

        self.calls += 1
        if self.calls > 20 and os.environ.get("RANK") == "1":
            raise ValueError("this rank has had enough")
        return super().loss(model, batch)
"""
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        site.add_workload(CALM, "tiny")
        yield site


@pytest.fixture
def on_postgres(tmp_path: Path, postgres_url: str, redis: str) -> Iterator[Site]:
    with Site(tmp_path, {"AMPBOARD_DATABASE_URL": postgres_url, "AMPBOARD_BROKER_URL": redis}) as site:
        site.add_workload(CALM, "tiny")
        yield site


def start_two(site: Site) -> dict[str, psutil.Popen]:
    """Two workers on two machines, as far as they say."""
    return {name: site.start_worker(name, AMPBOARD_WORKER_HOST=f"machine-{name}") for name in ("one", "two")}


def submit_on_two(site: Site, workload: str = "tiny", **config: object) -> int:
    given = {"steps": STEPS, "distribution": {"strategy": "ddp", "nnodes": 2}, **config}
    (run_id,) = site.submit(workload, num_hosts=2, **given)  # type: ignore[arg-type]  # a test's fields
    return run_id


def seats(site: Site, run_id: int, attempt: int) -> list[Seat]:
    with site.database.read() as session:
        query = select(Seat).where(Seat.run_id == run_id, Seat.attempt == attempt).order_by(Seat.node)
        return list(session.scalars(query))


def worker_of(site: Site, seat: Seat) -> str:
    with site.database.read() as session:
        return session.get_one(Worker, seat.worker_id).name


def child_of(site: Site, run_id: int, attempt: int, node: int) -> int:
    """The supervised process of one host's part: the first of those in its scratch folder."""
    name = f"{run_id}-{attempt}-{node}" if node else f"{run_id}-{attempt}"
    scratch = str(site.settings.data_dir / "scratch" / name)
    found = [pid for pid in site.children() if psutil.Process(pid).cwd() == scratch and os.getpgid(pid) == pid]
    return min(found, key=lambda pid: psutil.Process(pid).create_time())


def assert_nothing_is_left(site: Site, run_id: int) -> None:
    """No process, no open seat, and every device free: both workers take further runs at once."""
    wait_for(lambda: not site.children(), "processes outlive their run", 15, site.logs)
    with site.database.read() as session:
        assert session.scalars(select(Seat).where(Seat.run_id == run_id, Seat.state != "ended")).all() == []
    further = [run_id for seed in (7, 8) for run_id in site.submit("tiny", steps=STEPS, first_seed=seed)]
    assert [site.await_end(run_id).state for run_id in further] == ["completed"] * 2
    assert {site.attempts(run_id)[0].worker_name for run_id in further} == {"one", "two"}


def assert_is_whole(site: Site, run_id: int, outcomes: list[str]) -> Run:
    run = site.await_end(run_id, 120)
    assert run.state == "completed", (run.reason, site.logs())
    assert [attempt.outcome for attempt in site.attempts(run_id)] == outcomes, site.logs()
    (alone,) = site.submit("tiny", steps=run.steps)
    assert site.await_end(alone).state == "completed"
    steps, values = site.series(run_id)
    assert (steps, len(values)) == (list(range(1, run.steps + 1)), run.steps)
    np.testing.assert_allclose(values, site.series(alone)[1], rtol=2e-5, atol=1e-8)
    return run


def check_two_hosts(site: Site) -> None:
    start_two(site)
    run_id = submit_on_two(site, "stdlib-gpt", steps=24, params=GPT, eval_every=12)
    run = site.await_end(run_id, 120)
    assert run.state == "completed", (run.reason, site.logs())
    first, second = seats(site, run_id, 1)
    assert {worker_of(site, first), worker_of(site, second)} == {"one", "two"}
    assert (first.devices, second.devices) == (["cpu"], ["cpu"])
    assert first.endpoint == second.endpoint
    assert first.outcome == "completed"
    (alone,) = site.submit("stdlib-gpt", steps=24, params=GPT, eval_every=12)
    assert site.await_end(alone).state == "completed"
    steps, values = site.series(run_id)
    assert steps == list(range(1, 25))
    np.testing.assert_allclose(values, site.series(alone)[1], rtol=2e-5)
    assert_nothing_is_left(site, run_id)


def test_two_hosts_train_one_run_as_one_process_does(site: Site) -> None:
    check_two_hosts(site)


@pytest.mark.postgres
@pytest.mark.redis
def test_two_hosts_meet_through_postgres_and_redis(on_postgres: Site) -> None:
    check_two_hosts(on_postgres)


@pytest.mark.parametrize("node", [0, 1])
def test_kill_the_child_of_one_host(site: Site, node: int) -> None:
    """The gang ends on both, and goes on from the first host's checkpoint as its next attempt."""
    start_two(site)
    run_id = submit_on_two(site, steps=120, checkpoint_every_steps=20)
    site.await_step(run_id, 50)
    os.kill(child_of(site, run_id, 1, node), signal.SIGKILL)
    assert_is_whole(site, run_id, ["lost", "completed"])
    reason = site.attempts(run_id)[0].reason
    assert reason is not None
    assert reason["kind"] == "lost"
    assert f"ost {node + 1} of 2" in reason["message"]
    assert "SIGKILL" in reason["message"]
    with site.database.read() as session:
        started = session.scalars(select(Event).where(Event.run_id == run_id, Event.kind == "started")).all()
    assert [event.payload["resumed_step"] >= 40 for event in started] == [False, True]
    assert_nothing_is_left(site, run_id)


@pytest.mark.parametrize("node", [0, 1])
def test_kill_the_worker_of_one_host(site: Site, node: int) -> None:
    """Its lease runs out, the other host's processes end, and the run waits until there are two hosts again."""
    workers = start_two(site)
    run_id = submit_on_two(site, steps=120)
    site.await_step(run_id, 30)
    name = worker_of(site, seats(site, run_id, 1)[node])
    site.kill(workers[name])
    wait_for(lambda: site.run(run_id).state == "queued", "the run is not queued again", 30, site.logs)
    wait_for(lambda: not site.children(), "processes outlive the gang", 10, site.logs)
    reason = site.run(run_id).reason
    assert reason is not None
    assert f"Worker {name}" in reason["message"], reason
    site.start_worker(name, AMPBOARD_WORKER_HOST=f"machine-{name}")
    assert_is_whole(site, run_id, ["lost", "completed"])
    assert_nothing_is_left(site, run_id)


def test_stopping_one_worker_gives_the_run_back_without_a_charge(site: Site) -> None:
    workers = start_two(site)
    run_id = submit_on_two(site, steps=120, max_attempts=1)
    site.await_step(run_id, 20)
    name = worker_of(site, seats(site, run_id, 1)[1])
    assert site.stop(workers[name]) == 0
    assert site.run(run_id).state == "queued"
    site.start_worker(name, AMPBOARD_WORKER_HOST=f"machine-{name}")
    assert_is_whole(site, run_id, ["lost", "completed"])


def test_cancelling_ends_both_hosts(site: Site) -> None:
    start_two(site)
    run_id = submit_on_two(site, steps=5000)
    site.await_step(run_id, 20)
    with site.database.write() as session:
        cancel_run(session, run_id, "ann")
    run = site.await_end(run_id, 30)
    assert run.state == "cancelled"
    assert_nothing_is_left(site, run_id)


def test_pausing_frees_both_hosts_and_the_run_goes_on(site: Site) -> None:
    start_two(site)
    run_id = submit_on_two(site, steps=150)
    site.await_step(run_id, 20)
    with site.database.write() as session:
        pause_run(session, run_id)
    wait_for(lambda: site.run(run_id).state == "paused", "the run is not paused", 30, site.logs)
    wait_for(lambda: not site.children(), "processes outlive the pause", 10, site.logs)
    with site.database.write() as session:
        resume_run(session, run_id)
    assert_is_whole(site, run_id, ["paused", "completed"])


def test_a_failure_on_the_second_host_is_the_reason_of_the_run(site: Site) -> None:
    site.add_workload(FAILS.replace("class Tiny(", "class Fails("), "fails")
    start_two(site)
    run_id = submit_on_two(site, "fails")
    run = site.await_end(run_id)
    assert run.state == "failed"
    assert run.reason is not None
    assert "this rank has had enough" in run.reason["message"], run.reason
    assert "host 2 of 2" in run.reason["message"]
    assert "ValueError" in run.reason["traceback"]
    assert "this rank has had enough" in seats(site, run_id, 1)[1].log
    assert_nothing_is_left(site, run_id)


def test_a_time_limit_ends_both_hosts(site: Site) -> None:
    start_two(site)
    run_id = submit_on_two(site, steps=5000, max_time_s=15)
    run = site.await_end(run_id)
    assert run.state == "failed"
    assert run.reason is not None
    assert run.reason["kind"] == "time_limit"
    assert_nothing_is_left(site, run_id)


def test_one_machine_is_not_two_hosts(site: Site) -> None:
    for name in ("one", "two"):
        site.start_worker(name, AMPBOARD_WORKER_HOST="the-same")
    run_id = submit_on_two(site)
    (small,) = site.submit("tiny", steps=20)
    assert site.await_end(small).state == "completed", "nothing is kept for what cannot run"
    assert site.run(run_id).state == "queued"
    site.start_worker("three", AMPBOARD_WORKER_HOST="another")
    assert_is_whole(site, run_id, ["completed"])
