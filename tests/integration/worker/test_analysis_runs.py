"""Analyses end to end: queued, claimed, executed in a child, reported, and read from the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select
from worker_site import Site

from server.analyses.queries import newest_progress, newest_report
from server.db.tables import Event

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


def test_a_stress_run_reports_its_findings_as_events(site: Site) -> None:
    options = {"start": 2, "cases": ["ordinary", "beyond_fp16"]}
    (run_id,) = site.submit("planted", kind="stress", recipe=FP16, params={"depth": 2}, options=options)
    run = site.await_end(run_id)
    assert (run.state, run.reason) == ("completed", None)
    with site.database.read() as session:
        report = newest_report(session, run_id)
        found = list(session.scalars(select(Event.payload).where(Event.kind == "stress_finding")))
    assert report is not None
    assert [row["outcome"] for row in report["content"]["cases"]] == ["passes", "finding"]
    assert {one["case"] for one in found} == {"beyond_fp16"}
