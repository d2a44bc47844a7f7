"""The smallest FP32 set of real small models: what is planted is found, proved, and makes a recipe that works."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted_workloads import Planted, config_of

from amp_core import training
from amp_core.analysis import analysis_of
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.errors import Interrupted, RecipeError
from amp_core.events import Event, Finished, NonFinite, Progress, Report, Started, StepSkipped
from amp_core.loader import load


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _events(recipe: str | dict[str, Any], workload: Planted, **options: Any) -> list[Event]:
    config = config_of("sensitivity", recipe, **{"start": 4, "horizon": 4, **options})
    return list(analysis_of("sensitivity")(config, workload))


def _final(events: list[Event]) -> dict[str, Any]:
    reports = [event for event in events if isinstance(event, Report)]
    assert [report.final for report in reports] == [False] * (len(reports) - 1) + [True]
    return reports[-1].content


def test_planted_modules_are_found_and_proved() -> None:
    workload = Planted(depth=30, tall="4,20", swamped="12")
    events = _events("fp16", workload)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert [event.done for event in events if isinstance(event, Progress)][-1] > 0
    content = _final(events)
    assert content["state"] == "found"
    planted = {"5.linear", "13.linear", "21.linear"}
    assert set(content["minimal"]) == planted
    assert content["evaluations"] <= 2 * 3 * 6
    certificate = content["certificate"]
    assert certificate["with_set"]["passed"]
    assert not certificate["alone"]["passed"]
    assert {proof["module"] for proof in certificate["without"]} == planted
    assert all(not proof["fails"]["passed"] and proof["fails"]["reason"] for proof in certificate["without"])
    assert len(certificate["checkpoint"]["sha256"]) == 64
    assert len(certificate["batches"]) == certificate["horizon"] == 4
    out_of_range = {row["module"] for row in content["modules"] if row["out_of_range"]}
    assert {"5.linear", "21.linear"} <= out_of_range


def test_the_recipe_it_gives_trains() -> None:
    workload = Planted(tall="6")
    content = _final(_events("fp16", workload))
    recipe = parse_recipe(content["recipe"])
    assert recipe.fp32_modules == ("7.linear",)

    def faults(of: Any) -> int:
        config = RunConfig(
            run_id=1,
            attempt=1,
            workload=WorkloadRef(name="planted", path=__file__),
            recipe=of,
            steps=8,
            seed=3,
            diagnose_s=0.0,
        )
        return sum(isinstance(event, StepSkipped | NonFinite) for event in training.train(config, workload))

    assert faults(parse_recipe("fp16")) > 0
    assert faults(recipe) == 0


def test_the_certificate_can_be_repeated() -> None:
    first, second = (_final(_events("fp16", Planted(tall="3"))) for _ in range(2))
    for content in (first, second):
        content.pop("seconds")
    assert first == second


def test_nothing_to_keep_is_an_answer() -> None:
    content = _final(_events("fp16", Planted(depth=4)))
    assert (content["state"], content["minimal"], content["evaluations"]) == ("passes", [], 1)


def test_norms_near_one_do_not_move_in_bf16_weights() -> None:
    class Normed(Planted):
        """The same with a norm whose weights begin at one: an update of 1e-3 rounds away in bf16."""

        def model(self) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))

    content = _final(_events("bf16-true", Normed(), speed=False))
    proofs = {proof["module"]: proof["fails"] for proof in content["certificate"]["without"]}
    assert proofs["1"]["module"] == "1"
    assert proofs["1"]["update"] > 0.5


def test_a_fault_outside_of_modules_is_told() -> None:
    class TallLoss(Planted):
        """The loss passes through fp16's infinity by a product of its own."""

        def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
            x, y = batch
            return ((model(x) * 1e3) @ torch.full((4, 4), 1e3)).sub(y).square().mean() * 1e-12

    content = _final(_events("fp16", TallLoss(depth=3)))
    assert content["state"] == "none"
    assert content["recipe"] is None


def test_a_budget_leaves_a_partial_answer() -> None:
    content = _final(_events("fp16", Planted(depth=40, tall="9,30", swamped="20"), max_evaluations=3))
    assert content["state"] == "stopped"
    assert content["minimal"] is None
    assert content["evaluations"] == 3
    assert "raise" in content["answer"].lower()


def test_a_cancel_leaves_a_partial_answer() -> None:
    config = config_of("sensitivity", "fp16", start=4, horizon=4)
    events = analysis_of("sensitivity")(config, Planted(tall="3"))
    for event in events:
        if isinstance(event, Progress) and event.done >= 1:
            break
    last = events.throw(Interrupted())  # type: ignore[attr-defined]  # it is a generator
    assert isinstance(last, Report)
    assert not last.final
    assert last.content["modules"]


def test_fp32_has_nothing_to_search() -> None:
    with pytest.raises(RecipeError, match=r"precision='32-true' computes nothing in half precision"):
        _events("fp32", Planted())


def test_the_file_of_planted_workloads_can_be_loaded() -> None:
    path = str(__file__).replace("test_sensitivity.py", "planted_workloads.py")
    assert load(WorkloadRef(name="planted", path=path, params={"tall": "1"})).values()["tall"] == "1"
