"""The stress battery: edge cases are what they say, and findings name the module that a planted fault sits in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted_workloads import Planted, config_of
from torch import Tensor, nn

from amp_core.analyses import STRESS_CASES
from amp_core.analysis import analysis_of
from amp_core.analysis.edge_batches import NotApplicable, edge_batch
from amp_core.events import Event, Finished, Progress, Report, Started, StressFinding


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _events(recipe: str | dict[str, Any], workload: Planted, *cases: str) -> list[Event]:
    return list(analysis_of("stress")(config_of("stress", recipe, start=2, cases=list(cases)), workload))


def _report(events: list[Event]) -> dict[str, Any]:
    last = [event for event in events if isinstance(event, Report)][-1]
    assert last.final
    return last.content


def _outcomes(content: dict[str, Any]) -> dict[str, str]:
    return {row["case"]: row["outcome"] for row in content["cases"]}


BATCH = (torch.arange(24.0).reshape(4, 6) + 1, torch.tensor([3, 1, 2, 0]))


def test_batches_are_scaled_blanked_cut_and_repeated() -> None:
    def inputs(case: str) -> Tensor:
        changed: Tensor = edge_batch(case, BATCH)[0]
        return changed

    assert inputs("masked_rows")[0].eq(0).all()
    assert torch.equal(inputs("masked_rows")[1:], BATCH[0][1:])
    assert inputs("zero_vectors").eq(0).all()
    assert inputs("zero_variance").var(dim=1).eq(0).all()
    assert torch.allclose(inputs("zero_variance").mean(dim=1), BATCH[0].mean(dim=1))
    assert float(inputs("huge_inputs").max()) == pytest.approx(6e4)
    assert float(inputs("tiny_inputs").max()) == pytest.approx(1e-7)
    assert inputs("long_reduction").shape == (64, 6)
    assert inputs("long_sequence").shape == (4, 24)
    assert inputs("odd_shape").shape == (3, 5)
    assert inputs("one_sample").shape == (1, 6)
    assert inputs("empty_batch").shape == (0, 6)
    assert edge_batch("empty_batch", BATCH)[1].shape == (0,)
    assert edge_batch("huge_inputs", BATCH)[1] is BATCH[1], "targets stay"
    assert BATCH[0][0, 0] == 1, "the batch given is not changed"


def test_masks_are_blanked_and_content_stays() -> None:
    batch = {"tokens": torch.tensor([[5, 7], [2, 9]]), "mask": torch.ones(2, 2, dtype=torch.bool), "labels": BATCH[1]}
    changed = edge_batch("masked_rows", batch)
    assert changed["mask"].tolist() == [[False, False], [True, True]]
    assert torch.equal(changed["tokens"], batch["tokens"])
    assert edge_batch("large_integers", batch)["tokens"].max() == 5000
    with pytest.raises(NotApplicable):
        edge_batch("large_integers", BATCH)
    with pytest.raises(NotApplicable):
        edge_batch("huge_inputs", batch)


def test_a_sound_model_in_bf16_has_no_finding_in_ordinary_shapes() -> None:
    cases = ("ordinary", "masked_rows", "zero_vectors", "one_sample", "long_reduction", "huge_loss", "tiny_loss")
    events = _events("bf16", Planted(depth=3), *cases)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    content = _report(events)
    assert set(_outcomes(content).values()) == {"passes"}
    assert content["reference"] == "FP64"
    assert not [event for event in events if isinstance(event, StressFinding)]
    assert [event.total for event in events if isinstance(event, Progress)] == [len(cases)] * (len(cases) + 2)


def test_inputs_beyond_fp16_are_found_at_the_first_module_and_mended() -> None:
    events = _events("fp16", Planted(depth=2), "beyond_fp16", "ordinary")
    content = _report(events)
    assert _outcomes(content) == {"beyond_fp16": "finding", "ordinary": "passes"}
    (found,) = [event for event in events if isinstance(event, StressFinding) and event.caused_by == "recipe"]
    assert (found.case, found.kind, found.module) == ("beyond_fp16", "non_finite", "0")
    assert "0" in content["recipe"]["fp32_modules"]
    assert content["mended"] == ["beyond_fp16"]


def test_a_planted_module_is_named() -> None:
    content = _report(_events("fp16", Planted(depth=6, swamped="3"), "ordinary", "masked_rows"))
    found = {(one["case"], one["kind"], one["module"]) for one in content["findings"]}
    assert ("ordinary", "inaccurate", "4.linear") in found
    assert "4.linear" in content["recipe"]["fp32_modules"]
    assert "ordinary" in content["mended"]


def test_without_a_scaler_a_tiny_loss_loses_its_gradients() -> None:
    unscaled = {"precision": "16-mixed", "scaler": "none"}
    content = _report(_events(unscaled, Planted(depth=2), "tiny_loss"))
    assert [(one["kind"], one["caused_by"]) for one in content["findings"]] == [("gradient_lost", "recipe")]
    assert _outcomes(_report(_events("fp16", Planted(depth=2), "tiny_loss"))) == {"tiny_loss": "passes"}


def test_what_the_model_itself_cannot_do_is_no_finding() -> None:
    class Softmax(Planted):
        """Masked attention over the inputs: a row without any content is NaN in every precision."""

        def model(self) -> nn.Module:
            return Masked()

        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            out: Tensor = model(batch[0])
            return out.square().mean()

    content = _report(_events("fp16", Softmax(), "ordinary", "masked_rows", "long_sequence"))
    outcomes = _outcomes(content)
    assert outcomes["masked_rows"] == "note"
    assert outcomes["long_sequence"] == "not applicable"
    assert outcomes["ordinary"] == "passes"
    assert "FP64, too" in next(row["sentence"] for row in content["cases"] if row["case"] == "masked_rows")


class Masked(nn.Module):
    """Softmax over what is not zero."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.linear(x).masked_fill(x == 0, float("-inf"))
        return scores.float().softmax(dim=-1) if scores.dtype is torch.float16 else scores.softmax(dim=-1)


def test_an_error_that_only_the_recipe_raises_is_a_finding() -> None:
    class Typed(Planted):
        """Code that takes FP32 and FP64 and refuses half."""

        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            out = model(batch[0])
            if out.dtype is torch.float16:
                raise TypeError("half is not supported here")
            return super()._criterion(out, batch[1])

    content = _report(_events("fp16", Typed(depth=2), "ordinary"))
    (found,) = content["findings"]
    assert (found["kind"], found["caused_by"]) == ("raises", "recipe")
    assert "half is not supported here" in found["sentence"]


def test_every_case_is_described_and_made() -> None:
    for case in STRESS_CASES:
        try:
            edge_batch(case, BATCH)
        except NotApplicable:
            assert case == "large_integers"
