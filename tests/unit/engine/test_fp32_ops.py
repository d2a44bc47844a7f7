"""Operations kept in FP32: every overload under autocast, gradients intact, gone afterwards; unknown names refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_workloads import DropoutNet, config_of, series_of
from torch import Tensor, nn
from torch.nn import functional

from amp_core.config import parse_recipe
from amp_core.errors import RecipeError
from amp_core.events import EffectivePrecision
from amp_core.precision import precision_for
from amp_core.training import train

CPU = torch.device("cpu")
RECIPES = (
    {"precision": "bf16-mixed"},
    {"precision": "16-mixed", "fp16_compute": "native"},
    {"precision": "16-mixed", "autocast_policy": "native"},
    {"precision": "16-mixed"},
)
CALLS: dict[str, Any] = {
    "softmax": lambda x: functional.softmax(x, dim=1),
    "aten.layer_norm": lambda x: functional.layer_norm(x, (6,)),
    "aten::sum": lambda x: x.sum(dim=1),
    "aten.sum.dim_IntList": lambda x: x.sum(dim=1),
    "gelu": functional.gelu,
    "mul": lambda x: x * x,
    "matmul": lambda x: x @ x.T,
    "cat": lambda x: torch.cat([x, x]),
}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(recipe.values()))
@pytest.mark.parametrize("name", CALLS)
def test_a_kept_operation_runs_in_fp32(recipe: dict[str, Any], name: str) -> None:
    low = torch.bfloat16 if recipe["precision"] == "bf16-mixed" else torch.float16
    torch.manual_seed(0)
    x = torch.randn(4, 6).to(low).requires_grad_()
    exact = x.detach().float().requires_grad_()
    expected = CALLS[name](exact)
    expected.square().sum().backward()
    precision = precision_for(parse_recipe({**recipe, "fp32_ops": [name]}), CPU)
    model = nn.Identity()
    with precision.applied(model):
        with precision.forward():
            y = CALLS[name](x)
        assert precision.kept_ops is not None
        assert precision.kept_ops.never_called() == []
    assert y.dtype is torch.float32
    assert torch.equal(y, expected)
    y.square().sum().backward()
    assert x.grad is not None
    assert exact.grad is not None
    near = {torch.bfloat16: 2**-6, torch.float16: 2**-9}[low]  # x used twice: each use casts its gradient
    torch.testing.assert_close(x.grad.float(), exact.grad, rtol=near, atol=near)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: "-".join(recipe.values()))
def test_the_rules_end_with_the_run(recipe: dict[str, Any]) -> None:
    x, weight = torch.randn(3, 4), torch.randn(4, 4)

    def product(given: dict[str, Any]) -> Tensor:
        precision = precision_for(parse_recipe(given), CPU)
        with precision.applied(nn.Identity()), precision.forward():
            return functional.linear(x, weight)

    before = product(recipe)
    assert torch.equal(product({**recipe, "fp32_ops": ["linear"]}), functional.linear(x, weight))
    assert torch.equal(product(recipe), before)
    assert before.dtype in (torch.bfloat16, torch.float16)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sofmax", "is no operation of torch.ops.aten.*softmax"),
        ("aten.sum.dim", "aten.sum has the overloads .*dim_IntList"),
        ("add_", "writes into a tensor.*add"),
    ],
)
def test_what_torch_does_not_have_is_refused_where_it_would_run(name: str, message: str) -> None:
    recipe = {"precision": "bf16-mixed", "fp32_ops": [name]}
    with pytest.raises(RecipeError, match=message):
        list(train(config_of(recipe, steps=1), DropoutNet()))


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"precision": "bf16-mixed", "fp32_ops": ["soft max"]}, "no name of an operation"),
        ({"precision": "bf16-true", "fp32_ops": ["softmax"]}, "exceptions from autocast"),
        ({"precision": "bf16-mixed", "compile": True, "fp32_ops": ["softmax"]}, "leave one of them out"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(recipe: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe(recipe)


def test_other_rules_at_the_same_time_are_an_error() -> None:
    first, second = (
        precision_for(parse_recipe({"precision": "bf16-mixed", "fp32_ops": [op]}), CPU) for op in ("sum", "mean")
    )
    with (
        first.applied(nn.Identity()),
        pytest.raises(RuntimeError, match="are in force"),
        second.applied(nn.Identity()),
    ):
        pass


def test_a_run_trains_with_them_and_says_which_met_no_call() -> None:
    recipe = {"precision": "bf16-mixed", "fp32_ops": ["gelu", "bilinear"]}
    events = list(train(config_of(recipe, steps=6), DropoutNet()))
    proof = next(event for event in events if isinstance(event, EffectivePrecision))
    assert "fp32_ops bilinear: no call has met such a rule" in proof.sentence
    plain = series_of(train(config_of("bf16-mixed", steps=6), DropoutNet()))["train/loss"]
    assert series_of(events)["train/loss"] != plain
    kept = {"precision": "bf16-mixed", "fp32_ops": ["linear", "gelu", "layer_norm"]}
    exact = series_of(train(config_of("32-true", steps=6), DropoutNet()))["train/loss"]
    assert series_of(train(config_of(kept, steps=6), DropoutNet()))["train/loss"] == exact
