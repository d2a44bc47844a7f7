"""Recipes that cannot work are refused with value, rule and remedy, when they are written or where they would run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_workloads import DropoutNet, config_of, series_of

from amp_core.config import parse_recipe
from amp_core.errors import RecipeError, WorkloadError
from amp_core.precision.tf32 import fp32_precision, tf32_off, tf32_on
from amp_core.recipe_rules import check_device
from amp_core.training import train


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"precision": "16-true", "scaler": "dynamic"}, "unscaling them there.*choose 16-mixed"),
        ({"precision": "bf16-true", "scaler": "static"}, "only 16-mixed needs loss scaling"),
        ({"precision": "16-true", "fp16_compute": "emulated"}, "applies to 16-mixed only"),
        ({"precision": "bf16-true", "autocast_policy": "cuda"}, "nothing is lowered by autocast"),
        ({"precision": "fp32", "accumulate": 0}, "accumulate=0 must be at least 1"),
        ({"precision": "fp32", "clip_norm": -1.0}, "clip_norm=-1.0 must be positive"),
        ({"precision": "fp32", "clip_norm": 1.0, "clip_value": 1.0}, "choose one"),
        ({"precision": "fp32", "ema_decay": 1.0}, "ema_decay=1.0 must lie between 0 and 1"),
        ({"precision": "fp32", "gradient_checkpointing": [""]}, "gradient_checkpointing holds an empty name"),
    ],
)
def test_nonsense_is_refused(recipe: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe(recipe)


@pytest.mark.parametrize(
    ("recipe", "device", "message"),
    [
        ("tf32", "cpu", "needs a CUDA device.*choose 32-true"),
        ({"precision": "fp16", "compile": True}, "cpu", "fp16_compute='native'"),
        ({"precision": "fp16", "fp16_compute": "emulated"}, "cuda", "needs a CPU"),
    ],
)
def test_a_device_refuses_what_it_cannot_run(recipe: Any, device: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check_device(parse_recipe(recipe), device)
    for fine in ("fp32", "bf16", "fp16", "bf16-true", "16-true"):
        check_device(parse_recipe(fine), device)


def test_tf32_is_refused_by_a_run_on_a_cpu() -> None:
    with pytest.raises(RecipeError, match="tf32"):
        next(iter(train(config_of("tf32"), DropoutNet())))


def test_tf32_switches_cuda_only_and_return() -> None:
    before = fp32_precision()
    with tf32_on():
        inside = fp32_precision()
        with tf32_off():
            assert set(fp32_precision().values()) == {"ieee"}
    assert {name for name, value in inside.items() if value == "tf32"} == {"cuda.matmul", "cudnn.conv", "cudnn.rnn"}
    assert fp32_precision() == before


def test_a_checkpointing_pattern_without_match_names_its_neighbours() -> None:
    recipe = {"precision": "32-true", "gradient_checkpointing": ["block"]}
    with pytest.raises(RecipeError, match="gradient_checkpointing pattern 'block' matches no module"):
        next(iter(train(config_of(recipe), DropoutNet())))


class Twice(DropoutNet):
    def optimizers(self, model: torch.nn.Module) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(list(model.parameters())[:1], lr=0.1)]


class Plateau(DropoutNet):
    def schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> Any:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)


class NoOptimizer(DropoutNet):
    def optimizers(self, model: torch.nn.Module) -> list[torch.optim.Optimizer]:
        return []


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Twice, "'0.weight' is in two optimizers"),
        (Plateau, "gave ReduceLROnPlateau"),
        (NoOptimizer, r"optimizers\(\) of workload 'no-optimizer' gave none"),
    ],
)
def test_optimizers_and_schedules_are_checked(kind: type[DropoutNet], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        next(iter(train(config_of("32-true"), kind())))


class FusedMomentum(DropoutNet):
    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, fused=True)


class Momentum(DropoutNet):
    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def test_a_skipped_first_step_leaves_fused_momentum_defined() -> None:
    """torch's fused SGD takes whatever memory held for momentum when its first step is skipped."""
    recipe = {"precision": "16-mixed", "fp16_compute": "native", "scaler": {"init_scale": 2.0**24}}
    fused, plain = (
        list(series_of(train(config_of(recipe, steps=15), kind()))["train/loss"].values())
        for kind in (FusedMomentum, Momentum)
    )
    assert fused == pytest.approx(plain, rel=1e-4)
