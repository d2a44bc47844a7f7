"""docs/metrics.md is the table's page, and the table knows every series a run records."""

from __future__ import annotations

from pathlib import Path

from plain_loops import Scheduled
from small_workloads import Classes, WideNet, config_of, series_of

from amp_core.telemetry.metrics import METRICS, page
from amp_core.training import train

ROOT = Path(__file__).parents[3]


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m amp_core.telemetry.metrics > docs/metrics.md"


def test_every_recorded_series_is_listed_and_the_other_way_round() -> None:
    recorded: set[str] = set()
    for recipe in ("32-true", "16-mixed"):
        recorded |= series_of(train(config_of(recipe), Classes())).keys()
    recorded |= series_of(train(config_of("fp8-mixed"), WideNet())).keys()
    recorded |= series_of(train(config_of("32-true"), Scheduled())).keys()
    recorded = {"eval/<metric>" if name.startswith("eval/") else name for name in recorded}
    on_nvml = {metric.name for metric in METRICS if metric.name.startswith("device/")}
    only_on_cuda = {"memory/allocated_bytes", *on_nvml}
    assert recorded | only_on_cuda == {metric.name for metric in METRICS}
