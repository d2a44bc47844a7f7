"""kill -9 of child, worker, server and broker in the middle of a run: the history is whole afterwards.

Each killed run is compared with an undisturbed one of the same seed: the same steps, each once, with bitwise the same
losses.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from worker_site import TINY, Site, wait_for

from server.accounts.service import create_token
from server.broker.embedded import EmbeddedBroker
from server.broker.publish import ring
from server.db.tables import User
from server.queue.cancel import retry_run

STEPS = 150
KILL_AT = 40


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[int], list[float]]:
    """Steps and losses of a run that nothing happened to."""
    with Site(tmp_path_factory.mktemp("undisturbed")) as site:
        site.add_workload(TINY, "tiny")
        site.start_worker()
        (run_id,) = site.submit("tiny", steps=STEPS)
        assert site.await_end(run_id).state == "completed"
        steps, values = site.series(run_id)
    assert steps == list(range(1, STEPS + 1))
    return steps, values


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        site.add_workload(TINY, "tiny")
        yield site


def the_child(site: Site) -> int:
    """The process that trains now."""
    (pid,) = site.children()
    return pid


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def assert_whole(site: Site, run_id: int, undisturbed: tuple[list[int], list[float]], outcomes: list[str]) -> None:
    run = site.await_end(run_id)
    assert run.state == "completed", (run.reason, site.logs())
    assert [attempt.outcome for attempt in site.attempts(run_id)] == outcomes
    assert site.series(run_id) == undisturbed
    assert site.experiment(run_id).state == "ended"


@pytest.mark.parametrize("warm", ["true", "false"])
def test_kill_the_child(site: Site, warm: str, undisturbed: tuple[list[int], list[float]]) -> None:
    """Its run has failed with the signal as reason, and what it said is kept; a retry makes it whole."""
    site.start_worker(AMPBOARD_WARM_CHILDREN=warm)
    (run_id,) = site.submit("tiny", steps=STEPS)
    site.await_step(run_id, KILL_AT)
    os.kill(the_child(site), signal.SIGKILL)
    run = site.await_end(run_id, 10)
    assert run.state == "failed"
    assert run.reason is not None
    assert run.reason["kind"] == "signal"
    assert "SIGKILL" in run.reason["message"]
    steps, values = site.series(run_id)
    assert steps == list(range(1, len(steps) + 1))
    assert values == undisturbed[1][: len(steps)]
    assert len(steps) >= KILL_AT
    with site.database.write() as session:
        assert retry_run(session, run_id)
    assert_whole(site, run_id, undisturbed, ["failed", "completed"])


def test_kill_the_worker(site: Site, undisturbed: tuple[list[int], list[float]]) -> None:
    """Its children die with it; its next process takes the run back at once and finishes it."""
    worker = site.start_worker()
    (run_id,) = site.submit("tiny", steps=STEPS)
    site.await_step(run_id, KILL_AT)
    child = the_child(site)
    site.kill(worker)
    wait_for(lambda: is_gone(child), "the child outlives its worker", 5)
    assert site.run(run_id).state == "running"
    site.start_worker()
    assert_whole(site, run_id, undisturbed, ["lost", "completed"])


def test_kill_the_worker_for_good(site: Site, undisturbed: tuple[list[int], list[float]]) -> None:
    """Another worker reaps the lease when it has expired, and finishes the run."""
    worker = site.start_worker("one")
    (run_id,) = site.submit("tiny", steps=STEPS)
    site.await_step(run_id, KILL_AT)
    site.start_worker("two")
    site.kill(worker)
    assert_whole(site, run_id, undisturbed, ["lost", "completed"])
    assert [attempt.worker_name for attempt in site.attempts(run_id)] == ["one", "two"]


def test_stopping_the_worker_gives_the_run_back_without_a_charge(
    site: Site, undisturbed: tuple[list[int], list[float]]
) -> None:
    worker = site.start_worker()
    (run_id,) = site.submit("tiny", steps=STEPS, max_attempts=1)
    site.await_step(run_id, KILL_AT)
    assert site.stop(worker) == 0
    assert site.run(run_id).state == "queued"
    site.start_worker()
    assert_whole(site, run_id, undisturbed, ["lost", "completed"])


def test_kill_the_broker(site: Site, undisturbed: tuple[list[int], list[float]]) -> None:
    """The run at hand does not notice; runs submitted while the broker is gone are found by polling."""
    site.start_worker()
    (run_id,) = site.submit("tiny", steps=STEPS)
    site.await_step(run_id, KILL_AT)
    broker = EmbeddedBroker(site.settings)
    pid = broker.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    (other_id,) = site.submit("tiny", steps=STEPS)
    assert_whole(site, run_id, undisturbed, ["completed"])
    assert_whole(site, other_id, undisturbed, ["completed"])
    wait_for(broker.is_running, "nobody restarts the broker", 10)


def test_a_message_that_comes_often_starts_nothing_twice(
    site: Site, undisturbed: tuple[list[int], list[float]]
) -> None:
    site.start_worker(AMPBOARD_WORKER_SLOTS="2")
    run_ids = site.submit("tiny", steps=STEPS, seeds=1) + site.submit("tiny", steps=STEPS, seeds=1)
    for _ in range(5):
        ring(site.settings, 16)
    for run_id in run_ids:
        assert_whole(site, run_id, undisturbed, ["completed"])


def test_kill_the_server(site: Site, undisturbed: tuple[list[int], list[float]]) -> None:
    """The run goes on without it, and the server shows the whole of it when it is back."""
    site.start_worker()
    port = free_port()
    command = [sys.executable, "-m", "server.cli", "server"]
    server = site.start(command, "server", AMPBOARD_PORT=str(port))
    await_server(site, port)
    (run_id,) = site.submit("tiny", steps=STEPS)
    site.await_step(run_id, KILL_AT)
    site.kill(server)
    assert_whole(site, run_id, undisturbed, ["completed"])
    site.start(command, "server", AMPBOARD_PORT=str(port))
    await_server(site, port)
    with site.database.write() as session:
        _, token = create_token(session, session.get_one(User, 1), "test", "viewer")
    answer = httpx.get(
        f"http://127.0.0.1:{port}/api/v1/runs/{run_id}/series/train/loss",
        headers={"Authorization": f"Bearer {token}"},
        params={"max_points": 100_000},
    )
    shown = answer.raise_for_status().json()
    assert (shown["steps"], shown["values"]) == undisturbed


def await_server(site: Site, port: int) -> None:
    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz").is_success
        except httpx.TransportError:
            return False

    wait_for(answers, "the server does not answer", 40, site.logs)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
