"""fp8-mixed in emulation: real casts, a scale per tensor, FP32 accumulation; what saturates or vanishes is counted."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_workloads import WideNet, config_of, series_of
from torch import Tensor, nn

from amp_core.config import parse_recipe
from amp_core.errors import RecipeError
from amp_core.events import EffectivePrecision, Started
from amp_core.precision import precision_for
from amp_core.precision.fp8_linear import E4M3, E5M2, Fp8Counts, Fp8Linear, scaled_cast
from amp_core.recipe_rules import check_device, check_strategy, is_emulated
from amp_core.training import train

CPU = torch.device("cpu")
FP8 = parse_recipe("fp8")


def _plain_cast(value: float, dtype: torch.dtype) -> float:
    """Round to nearest, ties to even, by the definition of the format; saturating. An oracle without torch's cast."""
    mantissa, smallest, largest = (3, -6, 448.0) if dtype is E4M3 else (2, -14, 57344.0)
    if value == 0 or value != value:
        return value
    exponent = max(torch.frexp(torch.tensor(abs(value), dtype=torch.float64))[1].item() - 1, smallest)
    unit = 2.0 ** (exponent - mantissa)
    rounded = round(abs(value) / unit) * unit  # Python's round is to even
    return (1 if value > 0 else -1) * min(rounded, largest)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.sampled_from([E4M3, E5M2]), st.booleans())
def test_casts_are_those_of_the_formats(values: list[float], dtype: torch.dtype, is_tiny: bool) -> None:
    x = torch.tensor(values) * (1e-30 if is_tiny else 1.0)
    counts = Fp8Counts()
    cast, scale = scaled_cast(x, dtype, counts)
    amax = max(abs(value) for value in x.tolist())
    assert scale.item() == pytest.approx(torch.finfo(dtype).max / max(amax, 1e-12), rel=1e-6)
    scaled = (x * scale).tolist()
    expected = [_plain_cast(value, dtype) for value in scaled]
    assert cast.float().tolist() == expected
    lost = sum(was != 0 and now == 0 for was, now in zip(x.tolist(), expected, strict=True))
    shares = counts.take()
    assert shares["amp/fp8_saturated_fraction"] == 0.0, "the scale fits the largest value"
    nonzero = int(torch.count_nonzero(x))
    assert shares["amp/fp8_underflow_fraction"] == pytest.approx(lost / nonzero if nonzero else 0.0)
    assert counts.take() == {}


def test_what_is_not_finite_is_counted_and_not_hidden() -> None:
    counts = Fp8Counts()
    cast, scale = scaled_cast(torch.tensor([1.0, float("inf"), 2.0, 3.0]), E4M3, counts)
    assert scale.item() == 0.0
    assert torch.isnan(cast.float()[1])
    assert counts.take()["amp/fp8_saturated_fraction"] == 0.25
    assert torch.tensor([float("inf")]).to(E4M3).float().item() == 448.0, "a bare cast hides an infinity on a CPU"


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_and_its_gradients_equal_products_of_real_casts(bias: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48, bias=bias))
    x, weights_of = torch.randn(4, 8, 32), torch.randn(4, 8, 48)
    x = (x * torch.logspace(-3, 3, 32)).bfloat16().float().requires_grad_()
    precision = precision_for(FP8, CPU)
    with precision.applied(model):
        with precision.forward():
            y = model(x)
        assert y.dtype is torch.bfloat16
        (y.float() * weights_of).sum().backward()

    def cast(t: Tensor, dtype: torch.dtype) -> Tensor:
        scale = torch.finfo(dtype).max / t.float().abs().max().double()
        return (t.float() * scale.float()).to(dtype).double() / scale

    layer = model[0]
    x2, g2 = x.detach().reshape(32, 32), weights_of.reshape(32, 48).bfloat16()
    expected = cast(x2, E4M3) @ cast(layer.weight.detach(), E4M3).t()
    if bias:
        expected = expected + layer.bias.detach().double()
    near = {"rtol": 2**-7, "atol": 2**-7}  # the sum with the bias is rounded once more
    torch.testing.assert_close(y.detach().double().reshape(32, 48), expected, **near)
    to_weight = cast(g2, E5M2).t() @ cast(x2, E4M3)
    torch.testing.assert_close(layer.weight.grad.double(), to_weight, rtol=2**-8, atol=1e-2)
    to_x = cast(g2, E5M2) @ cast(layer.weight.detach(), E4M3)
    torch.testing.assert_close(x.grad.double().reshape(32, 32), to_x, **near)
    if bias:
        torch.testing.assert_close(layer.bias.grad, g2.float().sum(dim=0), rtol=2**-7, atol=2**-7)


def test_layers_off_the_multiples_of_16_stay_in_bf16_and_are_on_the_record() -> None:
    model = WideNet().model()
    names = list(model.state_dict())
    precision = precision_for(parse_recipe({"precision": "fp8", "fp32_modules": ["5"]}), CPU)
    with precision.applied(model):
        told = precision.describe()
        assert list(model.state_dict()) == names
        assert type(copy.deepcopy(model)[1]) is Fp8Linear
    assert told["fp8_layers"] == ["1"]
    assert told["fp8_skipped"] == {"0": "8 × 32 is off the multiples of 16", "5": "kept in FP32 by the recipe"}
    assert all(type(module) is not Fp8Linear for module in model.modules()), "afterwards the model is as it was"


def test_rows_off_the_multiples_of_16_stay_in_bf16() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 16)), torch.randn(15, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(x)
    precision = precision_for(FP8, CPU)
    with precision.applied(model), precision.forward():
        assert torch.equal(model(x), expected)
        assert not torch.equal(model(torch.cat([x, x[:1]]))[:15], expected)
    assert precision.counts.misfits == {(15, 16, 16): 1}  # type: ignore[attr-defined]  # the emulation


def test_a_run_trains_is_emulated_and_has_the_series() -> None:
    events = list(train(config_of("fp8", steps=60, numerics_every=20), WideNet()))
    started = next(event for event in events if isinstance(event, Started))
    assert started.numerics == "emulated"
    assert started.environment["recipe"]["fp8_layers"] == ["1"]
    proof = next(event for event in events if isinstance(event, EffectivePrecision))
    assert proof.asked == "float8"
    assert proof.took_effect, proof.sentence
    series = series_of(events)
    assert set(series["amp/fp8_saturated_fraction"].values()) == {0.0}
    assert list(series["amp/fp8_underflow_fraction"]) == list(series["amp/fp8_saturated_fraction"])
    assert {25, 50, 60} <= series["amp/fp8_underflow_fraction"].keys()
    exact, low = (series_of(train(config_of(recipe, steps=60), WideNet()))["train/loss"] for recipe in ("fp32", "bf16"))
    losses = series["train/loss"]
    assert losses != low
    assert losses[60] == pytest.approx(exact[60], rel=0.2)


@pytest.mark.parametrize("alias", ["fp8", "fp8-mixed"])
def test_its_names(alias: str) -> None:
    assert parse_recipe(alias).precision == "fp8-mixed"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("transformer-engine", "choose fp8-mixed"),
        ({"precision": "fp8", "scaler": "dynamic"}, "only 16-mixed needs loss scaling"),
        ({"precision": "bf16", "fp8_compute": "emulated"}, "applies to fp8-mixed only"),
        ({"precision": "fp8", "fp8_compute": "emulated", "compile": True}, "leave compile out"),
        ({"precision": "fp8", "autocast_policy": "cuda"}, "leave it out"),
    ],
)
def test_nonsense_is_refused(recipe: Any, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe(recipe)


def test_where_it_runs_and_where_it_is_emulated() -> None:
    native = parse_recipe({"precision": "fp8", "fp8_compute": "native"})
    with pytest.raises(RecipeError, match="a CPU has no fp8 arithmetic"):
        check_device(native, "cpu")
    with pytest.raises(RecipeError, match="compile=true with fp8 emulated"):
        check_device(parse_recipe({"precision": "fp8", "compile": True}), "cpu")
    with pytest.raises(RecipeError, match="strategy='ddp'"):
        check_strategy(FP8, "fsdp")
    assert is_emulated(FP8, "cpu")
    assert not is_emulated(FP8, "cuda")
    assert is_emulated(parse_recipe({"precision": "fp8", "fp8_compute": "emulated"}), "cuda")
