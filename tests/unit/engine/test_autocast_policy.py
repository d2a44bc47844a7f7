"""Whose autocast lists decide: the CPU's own or CUDA's, for emulated fp16 and for bfloat16."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from amp_core.config import parse_recipe
from amp_core.errors import RecipeError
from amp_core.precision import precision_for

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("precision", "policy", "softmax", "product"),
    [
        ("16-mixed", "auto", torch.float32, torch.float16),
        ("16-mixed", "cuda", torch.float32, torch.float16),
        ("16-mixed", "native", torch.float16, torch.float16),
        ("bf16-mixed", "auto", torch.bfloat16, torch.bfloat16),
        ("bf16-mixed", "native", torch.bfloat16, torch.bfloat16),
        ("bf16-mixed", "cuda", torch.float32, torch.bfloat16),
    ],
)
def test_the_policy_decides_what_is_lowered(
    precision: str, policy: str, softmax: torch.dtype, product: torch.dtype
) -> None:
    chosen = precision_for(parse_recipe({"precision": precision, "autocast_policy": policy}), CPU)
    layer = nn.Linear(4, 4)
    with ExitStack() as stack:
        stack.enter_context(chosen.applied(layer))
        with chosen.forward():
            out = layer(torch.randn(2, 4))
            assert out.dtype is product
            assert out.softmax(-1).dtype is softmax


def test_native_lists_still_accumulate_in_fp32() -> None:
    chosen = precision_for(parse_recipe({"precision": "16-mixed", "autocast_policy": "native"}), CPU)
    ones = torch.ones(1, 4096)
    with chosen.applied(nn.Identity()), chosen.forward():
        assert torch.matmul(ones, ones.t()).item() == 4096


def test_two_lists_at_once_are_refused() -> None:
    cuda = precision_for(parse_recipe({"precision": "16-mixed", "autocast_policy": "cuda"}), CPU)
    native = precision_for(parse_recipe({"precision": "16-mixed", "autocast_policy": "native"}), CPU)
    with cuda.applied(nn.Identity()), pytest.raises(RuntimeError, match="in force"), native.applied(nn.Identity()):
        pass


@pytest.mark.parametrize(
    "given",
    [
        {"precision": "32-true", "autocast_policy": "cuda"},
        {"precision": "16-mixed", "fp16_compute": "native", "autocast_policy": "cuda"},
    ],
)
def test_a_policy_that_means_nothing_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(RecipeError, match="autocast_policy"):
        parse_recipe(given)
