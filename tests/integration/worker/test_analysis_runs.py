"""Analyses end to end: queued, claimed, executed in a child, reported, and read from the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from worker_site import Site

from server.analyses.queries import newest_progress, newest_report

PLANTED = Path(__file__).parents[2] / "unit" / "analysis" / "planted_workloads.py"
FP16 = {"name": "16-mixed", "precision": "16-mixed", "scaler": {"kind": "dynamic"}}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site")) as site:
        site.add_workload(PLANTED.read_text(), "planted")
        site.start_worker()
        yield site


def test_a_sensitivity_run_reports_the_planted_module(site: Site) -> None:
    options = {"start": 4, "horizon": 4}
    (run_id,) = site.submit("planted", kind="sensitivity", recipe=FP16, params={"tall": "6"}, options=options)
    run = site.await_end(run_id)
    assert (run.state, run.reason) == ("completed", None)
    with site.database.read() as session:
        report = newest_report(session, run_id)
        progress = newest_progress(session, run_id)
    assert report is not None
    assert (report["final"], report["content"]["minimal"]) == (True, ["7.linear"])
    assert report["content"]["recipe"]["fp32_modules"] == ["7.linear"]
    assert progress is not None
    assert progress["done"] >= 1
