"""The same worker on PostgreSQL and Redis: two of them on one queue, a kill, and an outage of the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from worker_site import TINY, Site, wait_for

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


@pytest.fixture
def site(tmp_path: Path, postgres_url: str, redis: str) -> Iterator[Site]:
    with Site(tmp_path, {"AMPBOARD_DATABASE_URL": postgres_url, "AMPBOARD_BROKER_URL": redis}) as site:
        site.add_workload(TINY, "tiny")
        yield site


class Outage:
    """The database refuses everybody, and those who were in are thrown out."""

    def __init__(self, server_url: str, url: str) -> None:
        self._engine = create_engine(server_url, isolation_level="AUTOCOMMIT")
        self._name = make_url(url).database

    def begin(self) -> None:
        self._execute(f"ALTER DATABASE {self._name} WITH ALLOW_CONNECTIONS false")
        self._execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._name}'")

    def end(self) -> None:
        self._execute(f"ALTER DATABASE {self._name} WITH ALLOW_CONNECTIONS true")
        self._engine.dispose()

    def _execute(self, statement: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(statement))


def test_two_workers_share_one_queue_through_the_death_of_one(site: Site) -> None:
    """Every run is completed exactly once, and its points are those of any other run of its seed."""
    first = site.start_worker("one")
    site.start_worker("two")
    run_ids = [run_id for _ in range(3) for run_id in site.submit("tiny", steps=60, seeds=4)]
    wait_for(
        lambda: {attempt.worker_name for run_id in run_ids for attempt in site.attempts(run_id)} == {"one", "two"},
        "the queue is not shared", 60, site.logs,
    )  # fmt: skip
    site.kill(first)
    by_seed: dict[int, list[tuple[list[int], list[float]]]] = {}
    for run_id in run_ids:
        run = site.await_end(run_id, 120)
        assert run.state == "completed", (run.reason, site.logs())
        by_seed.setdefault(run.seed, []).append(site.series(run_id))
    for seed, series in by_seed.items():
        assert series[0][0] == list(range(1, 61))
        assert all(other == series[0] for other in series), f"seed {seed}"
    outcomes = Counter(attempt.outcome for run_id in run_ids for attempt in site.attempts(run_id))
    assert outcomes["completed"] == len(run_ids)
    assert outcomes["lost"] <= 1
    assert site.experiment(run_ids[0]).state == "ended"


def test_a_run_outlives_an_outage_of_the_store(site: Site, postgres_server_url: str, postgres_url: str) -> None:
    """Longer than its lease: the run is not lost, goes on, ends meanwhile, and all its points are there afterwards."""
    site.start_worker("one")
    site.start_worker("two")
    (run_id,) = site.submit("tiny", steps=200)
    site.await_step(run_id, 30)
    outage = Outage(postgres_server_url, postgres_url)
    outage.begin()
    time.sleep(8)
    spools = list((site.settings.data_dir / "spool").rglob("*.spool"))
    outage.end()
    site.database.engine.dispose()
    assert len(spools) == 1, site.logs()
    run = site.await_end(run_id)
    assert run.state == "completed", (run.reason, site.logs())
    assert [attempt.outcome for attempt in site.attempts(run_id)] == ["completed"]
    assert site.series(run_id)[0] == list(range(1, 201))
    assert list((site.settings.data_dir / "spool").rglob("*.spool")) == []
