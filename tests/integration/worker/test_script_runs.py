"""A script from its file to its stored series, through a real worker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from worker_site import Site

from server.db.tables import Event

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as site:
        shutil.copytree(EXAMPLES / "scripts", site.workloads / "scripts")
        source = (EXAMPLES / "script_workloads.py").read_text()
        site.add_workload(source, "plain-script")
        yield site


def test_a_script_trains_and_its_record_is_whole(site: Site) -> None:
    site.start_worker()
    (run_id,) = site.submit("plain-script", steps=12)
    run = site.await_end(run_id, 120)
    assert run.state == "completed", site.log(run_id)
    assert run.result is not None
    assert run.result["steps"] == 12
    assert set(run.result["metrics"]) == {"loss"}
    assert run.environment is not None
    assert run.environment["script"]["path"].endswith("plain.py")
    steps, losses = site.series(run_id)
    assert steps == list(range(1, 13))
    assert losses[-1] < losses[0]
    for name in ("grad/norm", "perf/step_time_s", "grad/fp16_underflow_fraction", "eval/loss"):
        assert site.series(run_id, name)[0], name
    with site.database.read() as session:
        kinds = set(session.scalars(select(Event.kind).where(Event.run_id == run_id)))
    assert {"started", "evaluated", "numerics", "finished"} <= kinds


def test_a_changed_script_is_another_version(site: Site) -> None:
    (run_id,) = site.submit("plain-script", steps=12)
    script = site.workloads / "scripts" / "plain.py"
    script.write_text(script.read_text() + "\n")
    site.start_worker()
    run = site.await_end(run_id, 120)
    assert run.state == "failed"
    assert run.reason is not None
    assert "has changed since this run was submitted" in run.reason["message"]
