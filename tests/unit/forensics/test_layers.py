"""The layer-by-layer comparison: its measures equal direct computation, and it names where numbers part."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from amp_core.config import parse_recipe
from amp_core.forensics.layers import difference, layers, spacing
from amp_core.forensics.subject import Subject


class Offset(nn.Module):
    """Loses everything below the format's spacing at 4096."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 4096.0) - 4096.0


def subject(part: nn.Module, recipe: str) -> Subject:
    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), part, nn.Linear(16, 1))

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 8, generator=generator)
    return Subject(
        model=model,
        batches=[(x, x[:, :1])],
        loss=lambda m, b: functional.mse_loss(m(b[0]).float(), b[1]),
        optimizer=lambda ps: torch.optim.SGD(ps, lr=0.1),
        recipe=parse_recipe(recipe),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@given(value=st.floats(min_value=1e-30, max_value=6e4))
def test_spacing_is_the_distance_to_the_next_number(dtype: torch.dtype, value: float) -> None:
    low = torch.tensor(value).to(dtype)
    if low < torch.finfo(dtype).tiny:
        expected = float(torch.finfo(dtype).smallest_normal) * float(torch.finfo(dtype).eps)
    else:
        bits = low.view(torch.int16)
        above = (bits + 1).view(dtype)
        expected = float(above.double() - low.double()) if torch.isfinite(above) else math.nan
    found = float(spacing(low.double(), dtype))
    assert math.isnan(expected) or found == expected


def test_a_tensor_beside_itself_differs_in_nothing() -> None:
    x = torch.randn(100)
    same = difference(x, x, torch.float16)
    assert (same.relative_error, same.ulp, same.flushed, same.num_bad) == (0.0, 0.0, 0.0, 0)
    assert same.cosine == pytest.approx(1.0)


def test_the_measures_are_those_of_a_real_cast() -> None:
    wide = torch.tensor([1.0, 1e-9, 70000.0, -2.0, 3.0e-8, 0.0])
    seen = difference(wide.half(), wide, torch.float16)
    assert seen.num_bad == 1  # 70000
    assert seen.flushed == pytest.approx(1 / 4)  # 1e-9 of the four finite nonzero ones; 3e-8 rounds up
    assert seen.max_abs == 2.0


def test_the_module_where_numbers_part_is_named() -> None:
    found = layers(subject(Offset(), "bf16-mixed"))
    assert found.departs == "1"
    assert [layer.module for layer in found.layers] == ["0", "1", "2"]
    assert found.layers[2].weight_gradient is not None
    assert found.layers[2].weight is not None
    assert found.layers[0].output_gradient is not None


@pytest.mark.parametrize("recipe", ["bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("exactly", [False, True])
def test_ordinary_rounding_parts_nowhere(recipe: str, exactly: bool) -> None:
    found = layers(subject(nn.ReLU(), recipe), exactly=exactly)
    assert found.departs is None
    assert found.same_loss(found.reference_loss)
    output = found.layers[0].output
    assert output is not None
    assert 0 < output.relative_error < 0.01
    assert output.cosine > 0.9999


def test_fp32_beside_itself_is_equal_in_every_part() -> None:
    found = layers(subject(nn.ReLU(), "32-true"))
    for layer in found.layers:
        for part in (layer.output, layer.output_gradient, layer.weight_gradient, layer.weight):
            assert part is None or part.relative_error == 0.0
