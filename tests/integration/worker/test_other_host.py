"""Two workers with nothing in common but the store and a shared folder: a run goes on where the other one left it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, update
from worker_site import TINY, Site, wait_for

from amp_core.script.sources import source_text
from server.broker.embedded import EmbeddedBroker
from server.db.tables import Event, Workload
from server.queue.pause import pause_run, resume_run

STEPS, EVERY = 120, 20


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, {"AMPBOARD_ARTIFACTS": str(tmp_path / "shared")}) as site:
        site.add_workload(TINY, "tiny")
        with site.database.write() as session:  # as a worker's scan does
            source = source_text(site.workloads / "tiny.py", 10_000)
            session.execute(update(Workload).where(Workload.name == "tiny").values(source=source))
        yield site
        elsewhere = site.settings.model_copy(update={"data_dir": tmp_path / "elsewhere"})
        for process in site.processes:
            site.stop(process)
        EmbeddedBroker(elsewhere).stop()


def start_elsewhere(site: Site, **settings: str) -> None:
    """A worker with folders of its own and no workload file."""
    folder = site.folder / "elsewhere"
    empty = site.folder / "empty"
    empty.mkdir()
    place = {"AMPBOARD_DATA_DIR": str(folder), "AMPBOARD_WORKLOADS": str(empty)}
    site.start_worker("two", AMPBOARD_DATABASE_URL=site.settings.sqlalchemy_url, **place, **settings)


def started(site: Site, run_id: int) -> list[dict[str, object]]:
    with site.database.read() as session:
        query = select(Event.payload).where(Event.run_id == run_id, Event.kind == "started").order_by(Event.attempt)
        return list(session.scalars(query))


def test_a_run_goes_on_bitwise_on_a_host_that_has_neither_its_file_nor_its_checkpoints(site: Site) -> None:
    first = site.start_worker("one")
    (calm_id,) = site.submit("tiny", steps=STEPS)
    calm = site.await_end(calm_id)
    assert calm.state == "completed", (calm.reason, site.logs())
    (run_id,) = site.submit("tiny", steps=STEPS, checkpoint_every_steps=EVERY)
    site.await_step(run_id, 3 * EVERY)
    with site.database.write() as session:
        pause_run(session, run_id)
    wait_for(lambda: site.run(run_id).state == "paused", "the run is not paused", 30, site.logs)
    shared = site.folder / "shared" / "checkpoints" / f"run-{run_id}"
    assert 1 <= len(list(shared.iterdir())) <= 2
    site.stop(first)
    (site.workloads / "tiny.py").unlink()
    start_elsewhere(site, AMPBOARD_FETCH_WORKLOADS="true")
    with site.database.write() as session:
        resume_run(session, run_id)
    run = site.await_end(run_id)
    assert run.state == "completed", (run.reason, site.logs())
    assert [attempt.worker_name for attempt in site.attempts(run_id)] == ["one", "two"]
    assert int(str(started(site, run_id)[-1]["resumed_step"])) >= 3 * EVERY
    assert site.series(run_id) == site.series(calm_id)
    wait_for(lambda: not shared.exists(), "a completed run leaves its checkpoints", 10)


def test_a_worker_runs_only_its_own_files_unless_told(site: Site) -> None:
    (site.workloads / "tiny.py").unlink()
    (run_id,) = site.submit("tiny", steps=STEPS)
    start_elsewhere(site)
    run = site.await_end(run_id)
    assert run.state == "failed"
    assert run.reason is not None
    assert run.reason["kind"] == "workload"
    assert "is not on this host" in run.reason["message"]
    assert not (site.folder / "elsewhere" / "fetched").exists()
