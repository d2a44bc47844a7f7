"""The largest batch under a ceiling: real attempts in processes of their own; the ends agree with the memory used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests_child import Watched

import amp_core
from amp_core.config import WorkloadRef, parse_recipe
from amp_core.events import Failed, Finished, Progress, Report, Started

Watch = Callable[..., Watched]
PHOTO = Path(amp_core.__file__).parent / "workloads" / "photo_denoiser.py"
CEILING = 250 * 2**20
CODE = 200 * 2**20  # pages of libraries that an attempt is the first to touch: resident, and no data


def test_the_largest_batch_under_a_ceiling(watch: Watch) -> None:
    workload = WorkloadRef(name="photo-denoiser", path=str(PHOTO), params={"width": 64})
    options = {"first": 1024, "largest": 1_000_000, "memory_limit_bytes": CEILING, "resolution": 0.6, "steps": 1}
    ended = watch("photo-denoiser", workload=workload, kind="batch-size", options=options, num_threads=1).end()
    assert ended.exit_code == 0, ended.log
    assert len(ended.all(Started)) == 1
    assert len(ended.all(Finished)) == 1
    reports = ended.all(Report)
    assert [report.final for report in reports] == [False] * (len(reports) - 1) + [True]
    content = reports[-1].content
    assert content["state"] == "found"
    points = content["points"]
    assert len(ended.all(Progress)) == len(points)
    fits = [point["fits"] for point in points]
    assert fits == sorted(fits, reverse=True), "whatever is smaller than one that fits does so, too"
    assert content["largest"] >= 1024
    assert content["smallest_too_large"] - content["largest"] <= max(1, int(0.6 * content["largest"]))
    fitting = [point for point in points if point["fits"]]
    assert all(point["samples_per_s"] > 0 and point["peak_bytes"] <= CEILING + CODE for point in fitting)
    assert fitting[-1]["peak_bytes"] > fitting[0]["peak_bytes"]
    assert points[-1]["reason"]
    assert f"{content['largest']:,} fits" in content["answer"]


def test_a_failure_that_is_not_about_memory_ends_it(watch: Watch) -> None:
    ended = watch("raises", kind="batch-size", options={"steps": 6}, recipe=parse_recipe("fp32")).end()
    assert ended.exit_code == 1
    failed = ended.all(Failed)[0]
    assert "the fifth batch is bad" in failed.message
