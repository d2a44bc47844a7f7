"""Histograms that a run reports: of which tensors, at which steps, and that counting changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_workloads import DropoutNet, TinyLoss, config_of, events_of, series_of
from torch import Tensor, nn

from amp_core.events import ExponentHistograms
from amp_core.telemetry.exponent_counts import SMALL
from amp_core.telemetry.exponent_sampling import ExponentSampler, has_all_kinds, is_kept
from amp_core.telemetry.exponents import merged, read
from amp_core.training import train


def histograms_of(events: list[Any], kind: str) -> dict[int, dict[str, Any]]:
    found = [event for event in events_of(events, ExponentHistograms) if event.kind == kind]
    return {event.step: read({"modules": event.modules, "counts": event.counts}) for event in found}


def test_every_kind_is_counted_at_sampled_steps() -> None:
    events = list(train(config_of("16-mixed", numerics_every=10), DropoutNet()))
    for kind, modules in {
        "activations": ["0", "1", "2", "3", "4"],
        "gradients": ["0", "3", "4"],
        "weights": ["0", "3", "4"],
    }.items():
        steps = histograms_of(events, kind)
        assert list(steps) == ([1, 10, 20, 30] if kind == "gradients" else [1, 30])
        assert list(steps[1]) == modules
    weights = histograms_of(events, "weights")[1]
    assert [histogram.num_elements for histogram in weights.values()] == [24 * 8 + 24, 2 * 24, 24 * 4 + 4]
    assert weights["3"].zeros == 24, "the bias of a new layer norm"
    activations = histograms_of(events, "activations")[1]
    assert [histogram.num_elements for histogram in activations.values()] == [16 * 24] * 4 + [16 * 4]
    assert activations["2"].zeros > 16 * 24 * 0.1, "what dropout removed"
    assert {event.scale for event in events_of(events, ExponentHistograms)} == {65536.0}


def test_gradients_are_those_in_grad_after_unscaling() -> None:
    """The prediction from FP32 gradients is the share that the run measures by casting."""
    events = list(train(config_of("32-true"), TinyLoss()))
    measured = series_of(events)["grad/fp16_underflow_fraction"]
    for step, by_module in histograms_of(events, "gradients").items():
        shares = merged(by_module.values()).shares("fp16")
        assert shares.underflow == measured[step]
        assert merged(by_module.values()).shares("fp16", 30).underflow < shares.underflow


@pytest.mark.parametrize("recipe", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
def test_counting_changes_no_loss(recipe: str) -> None:
    often = series_of(train(config_of(recipe, numerics_every=1), DropoutNet()))["train/loss"]
    seldom = series_of(train(config_of(recipe, numerics_every=1000), DropoutNet()))["train/loss"]
    assert often == seldom


def test_accumulation_adds_its_batches_and_checkpointing_counts_once() -> None:
    plain = histograms_of(list(train(config_of("32-true", steps=1), DropoutNet())), "activations")[1]
    recipe = {"precision": "32-true", "accumulate": 3, "gradient_checkpointing": ["0", "3"]}
    many = histograms_of(list(train(config_of(recipe, steps=1), DropoutNet())), "activations")[1]
    assert {name: one.num_elements for name, one in many.items()} == {
        name: 3 * one.num_elements for name, one in plain.items()
    }


def test_large_and_small_outputs_of_one_module_are_one_histogram() -> None:
    model = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    sampler = ExponentSampler(model)
    with sampler.watching():
        for rows in (4, SMALL):
            model(torch.full((rows, 2), -3.0))
    (event,) = sampler.events(1, [], 1.0, weights=True)
    found = read({"modules": event.modules, "counts": event.counts})
    assert found["0"].by_exponent() == ([1], [2 * (4 + SMALL)]), "as it was before ReLU wrote into it"
    assert (found["1"].zeros, list(found)) == (2 * (4 + SMALL), ["0", "1"])


def test_infinities_of_a_skipped_step_are_counted_apart() -> None:
    recipe = {"precision": "16-mixed", "scaler": {"init_scale": 2.0**40}}
    gradients = histograms_of(list(train(config_of(recipe, steps=1), DropoutNet())), "gradients")[1]
    total = merged(gradients.values())
    assert total.infinite + total.nan > 0
    assert total.num_elements == total.zeros + total.infinite + total.nan + int(total.finite.sum())


class Odd(nn.Module):
    """Gives a tuple with whole numbers and nothing else that is a number."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, str]:
        return x, x.argmax(dim=1), "text"


def test_outputs_of_any_shape_are_looked_through() -> None:
    sampler = ExponentSampler(model := nn.Sequential(Odd()))
    with sampler.watching():
        model(torch.ones(2, 3))
    (event,) = sampler.events(1, [], 1.0, weights=True)
    assert read({"modules": event.modules, "counts": event.counts})["0"].num_elements == 6
    assert not any(module._forward_hooks for module in model.modules())


def test_long_runs_keep_ever_fewer() -> None:
    kept = [step for step in [1, *range(25, 100_001, 25)] if is_kept(step, 25, 100_003)]
    assert kept[:64] == [1, *range(25, 64 * 25, 25)]
    assert kept[64:67] == [64 * 25, 66 * 25, 68 * 25]
    assert len(kept) <= 64 + 32 * 6
    assert is_kept(100_003, 25, 100_003)
    watched = [step for step in kept if has_all_kinds(step, 25, 100_003)]
    assert watched[:8] == [1, *range(200, 1600, 200)]
    assert len(watched) <= len(kept) / 8 + 1
    assert has_all_kinds(100_003, 25, 100_003)


def test_nothing_watched_nothing_said() -> None:
    assert ExponentSampler(DropoutNet().model()).events(1, [], 1.0, weights=True) == []
