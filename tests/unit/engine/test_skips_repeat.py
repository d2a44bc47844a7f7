"""A run whose steps are skipped without end stops and says why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from small_workloads import DropoutNet, config_of, events_of
from torch import Tensor, nn

from amp_core.events import Evaluated, Finished, SkipsRepeat, StepSkipped
from amp_core.training import train
from amp_core.workload import Split

NATIVE = {"precision": "16-mixed", "fp16_compute": "native"}


class InfiniteGradient(DropoutNet):
    """A finite loss whose gradient is infinite: no loss scale helps."""

    every: int = 1

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for index, (x, y) in enumerate(super().batches(split, seed)):
            yield x, torch.full_like(y, float(index % self.every == 0))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        x, poison = batch
        outputs = model(x)
        loss = outputs.float().square().mean()
        return loss + (outputs.sum() * 0.0).abs().sqrt() if poison.max() > 0 else loss


def run(scaler: dict[str, Any], steps: int = 400, **params: int) -> list[Any]:
    return list(train(config_of({**NATIVE, "scaler": scaler}, steps=steps), InfiniteGradient(**params)))


def test_a_dynamic_scale_that_only_falls_stops_the_run() -> None:
    events = run({"kind": "dynamic"})
    (found,) = events_of(events, SkipsRepeat)
    assert (found.streak, found.step, found.scale_before, found.scale_after) == (41, 41, 2.0**16, 2.0**-25)
    assert "do not depend on the scale" in found.diagnosis
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.stopped == found.diagnosis
    assert finished.steps == finished.skipped_steps == 50  # seen at the next look, every 25 steps
    assert [e.final for e in events_of(events, Evaluated)] == [True]


def test_the_ratchet_is_seen_although_skips_are_never_in_a_row() -> None:
    events = run({"kind": "dynamic"}, every=7)
    (found,) = events_of(events, SkipsRepeat)
    assert found.streak == 1
    assert found.scale_after == 2.0**-25
    assert len(events_of(events, StepSkipped)) in range(41, 46)


def test_a_static_scale_is_told_to_come_down() -> None:
    (found,) = events_of(run({"kind": "static"}), SkipsRepeat)
    assert found.streak == 50
    assert "lower init_scale" in found.diagnosis


@pytest.mark.parametrize("scaler", [{"kind": "dynamic", "stop_after_skips": 0}, {"kind": "dynamic", "min_scale": 1.0}])
def test_the_limit_is_the_recipes(scaler: dict[str, Any]) -> None:
    """0 never stops; with a floor the streak decides."""
    events = run(scaler, steps=60)
    found = events_of(events, SkipsRepeat)
    assert [(each.streak, each.scale_after) for each in found] == ([] if "stop_after_skips" in scaler else [(50, 1.0)])
    assert events[-1].steps == 60 if not found else 50


def test_an_ordinary_run_is_left_alone() -> None:
    events = list(train(config_of({**NATIVE, "scaler": {"kind": "dynamic", "init_scale": 2.0**40}}), DropoutNet()))
    assert len(events_of(events, StepSkipped)) > 10
    assert not events_of(events, SkipsRepeat)
    assert events[-1].stopped == ""
