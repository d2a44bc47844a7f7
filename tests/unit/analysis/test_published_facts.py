"""What is published of half precision, in small: Micikevicius et al., Mixed Precision Training (2018), section 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amp_core import Workload, training
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Finished
from amp_core.telemetry.exponent_counts import exponent_counts, histograms
from amp_core.workload import Split

SHRINK = 2.0**-24


class Shrunken(Workload):
    """A regression whose loss is 2**-24 of its size, and whose learning rate makes up for it: FP32 sees no change."""

    lr: float = 0.05

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(10):
            x = torch.randn(32, 8, generator=generator)
            yield x, x[:, :4].tanh()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) * SHRINK

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr / SHRINK)


class Unit(Workload):
    """Eight weights that begin at 1 and should come to 1.1, by updates of about 2e-4: less than half a step of fp16."""

    def model(self) -> nn.Module:
        layer = nn.Linear(8, 1, bias=False)
        nn.init.ones_(layer.weight)
        return layer

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(10):
            x = torch.randn(64, 8, generator=generator)
            yield x, 1.1 * x.sum(dim=1, keepdim=True)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1e-3)


def _eval_loss(workload: Workload, recipe: str | dict[str, Any], steps: int) -> float:
    config = RunConfig(
        run_id=1,
        attempt=1,
        workload=WorkloadRef(name="fact", path=__file__),
        recipe=parse_recipe(recipe),
        steps=steps,
        eval_every=0,
        diagnose_s=0.0,
        numerics_every=0,
        seed=1,
    )
    (finished,) = [event for event in training.train(config, workload) if isinstance(event, Finished)]
    return finished.metrics["loss"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_a_small_loss_needs_loss_scaling_in_fp16() -> None:
    """Section 3.2: without scaling small gradients become zeros; with it, training matches FP32."""
    untrained = _eval_loss(Shrunken(lr=0.0), "fp32", 1)
    exact = _eval_loss(Shrunken(), "fp32", 80)
    unscaled = _eval_loss(Shrunken(), {"precision": "16-mixed", "scaler": "none"}, 80)
    scaled = _eval_loss(Shrunken(), "fp16", 80)
    assert exact < 0.5 * untrained
    assert unscaled == pytest.approx(untrained, rel=0.02), "it learns nothing"
    assert scaled == pytest.approx(exact, rel=0.02)


def test_half_weights_without_masters_stall() -> None:
    """Section 3.1: an update below half a unit in the last place of the weight changes nothing."""
    untrained = _eval_loss(Unit(), "fp32", 1)
    assert _eval_loss(Unit(), "fp32", 250) < 0.5 * untrained
    assert _eval_loss(Unit(), "fp16", 250) < 0.5 * untrained, "FP32 master weights take what fp16 computes"
    assert _eval_loss(Unit(), "16-true", 250) > 0.95 * untrained, "weights in fp16 stay where they are"


def test_a_skewed_histogram_loses_the_share_it_predicts() -> None:
    """Section 3.2 on SSD: two thirds zero, 31 % more are lost in fp16, and a factor of 8 recovers what matters."""
    generator = torch.Generator().manual_seed(5)
    count = 100_000
    lost, zeros = int(0.31 * count), int(0.668 * count)
    exponents = torch.empty(count - zeros)
    exponents[:lost] = torch.empty(lost).uniform_(-27.9, -25.001, generator=generator)
    exponents[lost:] = torch.empty(count - zeros - lost).uniform_(-24, -10, generator=generator)
    gradient = torch.cat([torch.exp2(exponents), torch.zeros(zeros)])[torch.randperm(count, generator=generator)]
    (histogram,) = histograms([exponent_counts(gradient)])
    for k in (0, 1, 2, 3, 8):
        really = int(((gradient * 2.0**k).half() == 0).sum()) - zeros
        assert histogram.shares("fp16", k).num_underflow == really
    assert histogram.zeros / count == pytest.approx(0.668)
    assert histogram.shares("fp16").num_underflow / count == pytest.approx(0.31)
    assert histogram.shares("fp16", 3).num_underflow == 0
