"""The comparison asked for: first step and horizon, FP32 or FP64, and the place where planted numbers part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted_workloads import Planted, config_of
from torch import Tensor, nn

from amp_core.analyses import parse_options
from amp_core.analysis import analysis_of
from amp_core.analysis.start import find_start, reference_recipe, step_at
from amp_core.config import parse_recipe
from amp_core.errors import AnalysisError, RecipeError
from amp_core.events import Finished, Report, Started
from amp_core.workload import Workload


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def reports(workload: Workload, recipe: Any = "bf16", **options: Any) -> list[Report]:
    events = list(analysis_of("layers")(config_of("layers", recipe, **options), workload))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    return [event for event in events if isinstance(event, Report)]


def layer(report: Report, module: str) -> dict[str, Any]:
    return next(row for row in report.content["layers"] if row["module"] == module)


def test_the_first_step_is_compared_alone_by_default() -> None:
    (report,) = reports(Planted(depth=3))
    assert (report.kind, report.final, report.content["step"], report.content["reference"]) == (
        "layers",
        True,
        1,
        "fp32",
    )
    assert report.content["departs"] is None
    assert "within rounding of FP32" in report.content["answer"]
    assert 0 < layer(report, "1")["output"]["relative_error"] < 0.02


def test_the_module_where_fp16_leaves_its_range_is_named() -> None:
    (report,) = reports(Planted(depth=4, tall="1"), "16-mixed", start=2)
    assert report.content["step"] == 3
    assert report.content["departs"].startswith("2")
    assert f"part from FP32 at {report.content['departs']}" in report.content["answer"]


def test_a_horizon_adds_what_the_steps_before_it_did() -> None:
    first, last = reports(Planted(depth=3, lr=0.05), start=1, horizon=6, reference="fp64")
    assert [first.final, last.final] == [False, True]
    assert [report.content["step"] for report in (first, last)] == [2, 7]
    assert {report.content["reference"] for report in (first, last)} == {"fp64"}
    errors = [layer(report, "1")["output"]["relative_error"] for report in (first, last)]
    assert errors[1] > errors[0], "weights have moved apart meanwhile"


def test_the_reference_of_the_horizon_is_the_fp32_training_itself() -> None:
    config = config_of("layers", "bf16", start=2, horizon=3)
    workload = Planted(depth=2)
    *_, last = reports(workload, start=2, horizon=3)
    start = find_start(config, workload, 2, 3)
    step = step_at(config, workload, start, reference_recipe(parse_recipe("bf16")))
    for taken in start.steps:
        loss = step.backward(taken)
        step.update()
        step.clear()
    assert last.content["reference_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_what_lowers_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="lowers nothing"):
        reports(Planted(depth=2), "fp32")


def test_a_model_without_fp64_is_told_with_the_remedy() -> None:
    class OnlySingle(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    class Stubborn(Planted):
        def model(self) -> nn.Module:
            return nn.Sequential(OnlySingle(8, 4))

    with pytest.raises(AnalysisError, match=r"does not run in FP64 .* choose reference='fp32'"):
        reports(Stubborn(), reference="fp64")


@pytest.mark.parametrize("options", [{"horizon": 0}, {"start": -1}, {"reference": "fp16"}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(AnalysisError):
        parse_options("layers", options)
