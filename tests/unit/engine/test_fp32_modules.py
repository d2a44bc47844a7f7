"""Modules kept in FP32: inputs cast up, autocast off inside, outputs left in FP32; unknown patterns are refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small_workloads import DropoutNet, config_of, series_of
from torch import Tensor, nn

from amp_core.config import parse_recipe
from amp_core.errors import RecipeError
from amp_core.precision import precision_for
from amp_core.training import train

CPU = torch.device("cpu")


class Watched(nn.Linear):
    """A linear layer that notes the dtypes it meets."""

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Any:
        self.seen = x.dtype, None if mask is None else mask.dtype
        y = super().forward(x)
        self.gave = y.dtype
        return y, {"again": y}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleDict({"mix": nn.Linear(4, 4), "norm": Watched(4, 4)}) for _ in range(2))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block["mix"](x)
            x, _ = block["norm"](x, mask=x)
        return self.head(x)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
def test_kept_modules_run_in_fp32_and_the_others_do_not(precision: str) -> None:
    model, x = Net(), torch.randn(3, 4)
    chosen = precision_for(parse_recipe({"precision": precision, "fp32_modules": ["blocks.*.norm"]}), CPU)
    with chosen.applied(model):
        with chosen.forward():
            y = model(x)
            copied = copy.deepcopy(model)
            copied(x)
        for each in (*model.blocks, *copied.blocks):
            assert each["norm"].seen == (torch.float32, torch.float32)
            assert each["norm"].gave is torch.float32
        assert y.dtype is (torch.bfloat16 if precision == "bf16-mixed" else torch.float16), "the head is not kept"
        y.float().sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(x)
    assert model.blocks[0]["norm"].gave is torch.bfloat16, "afterwards the module is as it was"


def test_one_block_by_name_leaves_the_other() -> None:
    model = Net()
    chosen = precision_for(parse_recipe({"precision": "bf16-mixed", "fp32_modules": ["blocks.1.norm"]}), CPU)
    with chosen.applied(model), chosen.forward():
        model(torch.randn(3, 4))
    assert model.blocks[0]["norm"].gave is torch.bfloat16
    assert model.blocks[1]["norm"].gave is torch.float32


def test_a_pattern_that_matches_nothing_names_its_neighbours() -> None:
    chosen = precision_for(parse_recipe({"precision": "bf16-mixed", "fp32_modules": ["blocks.1.nrm"]}), CPU)
    with (
        pytest.raises(RecipeError, match=r"'blocks\.1\.nrm' matches no module of Net.*'blocks\.1\.norm'"),
        chosen.applied(Net()),
    ):
        pass


def test_an_exception_inside_does_not_leave_autocast_off() -> None:
    model = Net()
    chosen = precision_for(parse_recipe({"precision": "bf16-mixed", "fp32_modules": ["blocks.0.norm", "head"]}), CPU)
    with chosen.applied(model), chosen.forward():
        with pytest.raises(RuntimeError):
            model.head(torch.randn(3, 5))
        assert torch.is_autocast_enabled("cpu")
        assert torch.mm(torch.ones(1, 1), torch.ones(1, 1)).dtype is torch.bfloat16


def test_everything_kept_is_fp32_training() -> None:
    """With all modules kept, the forward equals FP32's; the scaler's powers of two change no bit of it."""
    kept = {"precision": "16-mixed", "fp32_modules": ["*"]}
    plain = series_of(train(config_of("32-true"), DropoutNet()))["train/loss"]
    assert series_of(train(config_of(kept), DropoutNet()))["train/loss"] == plain
