"""Emulated fp16 arithmetic against independent statements of it: round, compute in fp32, round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core.config import parse_recipe
from amp_core.precision import EmulatedFp16Mixed, precision_for
from amp_core.precision.emulated import autocast_ops, cuda_rules

CPU = torch.device("cpu")


@pytest.fixture
def precision() -> EmulatedFp16Mixed:
    chosen = precision_for(parse_recipe("16-mixed"), CPU)
    assert isinstance(chosen, EmulatedFp16Mixed)
    return chosen


def rounded(values: Tensor) -> np.ndarray:
    """fp16 rounding by NumPy, held in float64."""
    with np.errstate(over="ignore"):
        return values.detach().numpy().astype(np.float16).astype(np.float64)


def assert_within_one_rounding(result: Tensor, exact: np.ndarray) -> None:
    """``result`` is the exact product rounded once to fp16, up to the order of an fp32 sum."""
    assert result.dtype is torch.float16
    spacing = np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64)
    assert np.all(np.abs(result.detach().double().numpy() - exact) <= 0.51 * spacing)


def test_linear_rounds_in_and_out_and_accumulates_in_fp32(precision: EmulatedFp16Mixed) -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(300, 7), torch.randn(5, 300)
    with precision.applied(layer), precision.forward():
        y = layer(x)
    assert_within_one_rounding(y, rounded(x) @ rounded(layer.weight).T + rounded(layer.bias))


def test_accumulation_beyond_2048_is_not_swamped(precision: EmulatedFp16Mixed) -> None:
    ones = torch.ones(1, 5000)
    with precision.applied(nn.Identity()), precision.forward():
        assert torch.mm(ones, ones.T).item() == 5000.0  # in fp16 accumulation the sum would stall at 2048


def test_overflow_and_underflow_happen_at_the_edges(precision: EmulatedFp16Mixed) -> None:
    one = torch.ones(1, 1)
    with precision.applied(nn.Identity()), precision.forward():
        assert torch.mm(torch.full((1, 1), 65519.0), one).item() == 65504.0
        assert torch.mm(torch.full((1, 1), 65520.0), one).item() == float("inf")
        assert torch.mm(torch.full((1, 1), 2.0**-25), one).item() == 0.0
        assert torch.mm(torch.full((1, 1), 2.0**-25 * 1.0001), one).item() == 2.0**-24
        assert torch.mm(torch.full((1, 2), 40000.0), torch.ones(2, 1)).item() == float("inf")


CONVOLUTIONS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "conv1d": lambda: (nn.Conv1d(3, 4, 3, padding=1), torch.randn(2, 3, 9)),
    "conv2d": lambda: (nn.Conv2d(3, 4, 3, stride=2), torch.randn(2, 3, 9, 9)),
    "conv2d same": lambda: (nn.Conv2d(4, 4, 3, padding="same", groups=2), torch.randn(2, 4, 5, 5)),
    "conv3d": lambda: (nn.Conv3d(2, 3, 2), torch.randn(1, 2, 4, 4, 4)),
    "conv_transpose2d": lambda: (nn.ConvTranspose2d(3, 2, 2, stride=2), torch.randn(2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_equal_fp32_on_rounded_inputs_rounded_once(name: str, precision: EmulatedFp16Mixed) -> None:
    torch.manual_seed(1)
    layer, x = CONVOLUTIONS[name]()
    exact = type(layer)(**_settings(layer)).double()
    exact.load_state_dict({key: value.half().double() for key, value in layer.state_dict().items()})
    with precision.applied(layer), precision.forward():
        y = layer(x)
    assert_within_one_rounding(y, exact(x.half().double()).detach().numpy())


def _settings(layer: nn.Module) -> dict[str, object]:
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "groups")
    return {name: getattr(layer, name) for name in names}


def test_backward_passes_through_the_same_roundings(precision: EmulatedFp16Mixed) -> None:
    torch.manual_seed(2)
    layer, x = nn.Linear(20, 30), torch.randn(8, 20, requires_grad=True)
    upstream = torch.randn(8, 30)
    with precision.applied(layer):
        with precision.forward():
            y = layer(x)
        y.backward(upstream.half())
    g = rounded(upstream)
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is torch.float32
    assert_within_one_rounding(layer.weight.grad.half(), g.T @ rounded(x))
    assert torch.equal(layer.weight.grad, layer.weight.grad.half().float()), "weight gradients were fp16 on their way"
    assert x.grad is not None
    assert_within_one_rounding(x.grad.half(), g @ rounded(layer.weight))


def test_activation_gradients_underflow_and_a_scale_brings_them_back(precision: EmulatedFp16Mixed) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 1))
    x = torch.randn(5, 4)
    with precision.applied(model):
        for scale, lost in ((1.0, True), (65536.0, False)):
            model.zero_grad()
            with precision.forward():
                loss = model(x).float().mean() * 1e-7
            (loss * scale).backward()
            gradient = model[0].weight.grad
            assert bool((gradient == 0).all()) is lost


def test_a_shared_weight_adds_its_gradients_in_fp16(precision: EmulatedFp16Mixed) -> None:
    """2048 + 1 + 1 is 2048 where each sum rounds to fp16, and 2050 in fp32."""
    weight = nn.Parameter(torch.ones(1, 1))
    upstream = [torch.full((1, 1), value) for value in (1.0, 1.0, 2048.0)]  # backward runs from the last
    model = nn.ParameterList([weight])
    with precision.applied(model):
        with precision.forward():
            outputs = [functional.linear(value, weight) for value in upstream]
            total = outputs[0].float() + outputs[1].float() + outputs[2].float()
        total.sum().backward()
    assert weight.grad is not None
    assert weight.grad.item() == 2048.0


def test_weight_casts_end_with_the_outermost_region(precision: EmulatedFp16Mixed) -> None:
    weight, x = nn.Parameter(torch.ones(1, 1)), torch.ones(1, 1)
    with precision.applied(nn.ParameterList([weight])):
        with precision.forward():
            assert functional.linear(x, weight).item() == 1.0
            weight.data.fill_(2.0)
            with torch.autocast("cpu", dtype=torch.float16):
                assert functional.linear(x, weight).item() == 1.0, "as autocast's cache: stale inside the region"
        with precision.forward():
            assert functional.linear(x, weight).item() == 2.0


def test_no_grad_casts_do_not_leak_into_training(precision: EmulatedFp16Mixed) -> None:
    layer, x = nn.Linear(3, 2), torch.randn(1, 3)
    with precision.applied(layer):
        with precision.forward():
            with torch.no_grad():
                layer(x)
            loss = layer(x).float().sum()
        loss.backward()
    assert layer.weight.grad is not None


def test_attention_is_never_decomposed(precision: EmulatedFp16Mixed) -> None:
    """Scores of 102,400 overflow as an explicit product; fused attention keeps them in fp32."""
    q = torch.full((1, 1, 2, 64), 80.0)
    with precision.applied(nn.Identity()), precision.forward():
        assert torch.isinf(q @ q.transpose(-1, -2)).all()
        fused = functional.scaled_dot_product_attention(q, q, q, scale=1.0)
    assert fused.dtype is torch.float16
    assert torch.isfinite(fused).all()


def test_chains_round_each_product(precision: EmulatedFp16Mixed) -> None:
    torch.manual_seed(4)
    a, b, c = torch.randn(3, 40), torch.randn(40, 50), torch.randn(50, 2)
    with precision.applied(nn.Identity()), precision.forward():
        chain = torch.einsum("ab,bc,cd->ad", a, b, c)
        big = torch.full((1, 2), 300.0)
        overflow = torch.einsum("ab,bc,cd->ad", big, big.T, torch.full((1, 1), 1e-3))
    half = [each.half().float() for each in (a, b, c)]
    first, last = half[0] @ half[1], half[1] @ half[2]
    stepwise = [(first.half().float() @ half[2]).half(), (half[0] @ last.half().float()).half()]
    assert any(torch.equal(chain, each) for each in stepwise), "either order of two rounded products"
    assert torch.isinf(overflow).all(), "the product inside is 180,000"


def test_einsum_keeps_sums_inside_in_fp16(precision: EmulatedFp16Mixed) -> None:
    with precision.applied(nn.Identity()), precision.forward():
        assert torch.einsum("ab,c->c", torch.ones(3, 4), torch.ones(2)).dtype is torch.float16


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_train(kind: type[nn.Module], precision: EmulatedFp16Mixed) -> None:
    torch.manual_seed(5)
    layer = kind(4, 6, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
    with precision.applied(layer):
        with precision.forward():
            y = layer(torch.randn(3, 7, 4))[0]
        assert y.dtype is torch.float16
        y.float().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


def test_packed_sequences_run(precision: EmulatedFp16Mixed) -> None:
    layer = nn.LSTM(4, 6)
    packed = nn.utils.rnn.pack_sequence([torch.randn(5, 4), torch.randn(3, 4)])
    with precision.applied(layer), precision.forward():
        assert layer(packed)[0].data.dtype is torch.float16


@pytest.mark.parametrize("recipe", ["16-mixed", "bf16-mixed"])
def test_transformer_layers_evaluate_in_the_recipes_precision(recipe: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    seen: list[torch.dtype] = []
    layer.linear2.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    chosen = precision_for(parse_recipe(recipe), CPU)
    with chosen.applied(layer), chosen.forward(), torch.no_grad():
        layer(torch.randn(2, 5, 8))
    assert seen == [torch.float16 if recipe == "16-mixed" else torch.bfloat16]
    assert torch.backends.mha.get_fastpath_enabled()


def test_bce_is_refused_as_on_cuda(precision: EmulatedFp16Mixed) -> None:
    p = torch.rand(3)
    with precision.applied(nn.Identity()):
        with precision.forward(), pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            functional.binary_cross_entropy(p, p)
        with precision.forward(), torch.autocast("cpu", enabled=False):
            functional.binary_cross_entropy(p, p)


def test_doubles_are_left_alone(precision: EmulatedFp16Mixed) -> None:
    x = torch.randn(2, 2, dtype=torch.float64)
    with precision.applied(nn.Identity()), precision.forward():
        assert torch.mm(x, x).dtype is torch.float64
        assert x.softmax(0).dtype is torch.float64


def test_a_bfloat16_region_inside_runs_in_bfloat16(precision: EmulatedFp16Mixed) -> None:
    layer, x = nn.Linear(2, 2), torch.full((1, 2), 1e6)
    with precision.applied(layer), precision.forward(), torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype is torch.bfloat16
        assert torch.isfinite(y).all()
        assert torch.einsum("ab,bc,cd->ad", x, x.T, x).dtype is torch.bfloat16
        assert y.softmax(1).dtype is torch.float32, "by CUDA's lists"
        assert torch.dot(y[0], y[0]).dtype is torch.bfloat16


def test_an_asked_dtype_is_kept(precision: EmulatedFp16Mixed) -> None:
    x = torch.randn(2, 2).half()
    with precision.applied(nn.Identity()), precision.forward():
        assert x.sum(dtype=torch.float16).dtype is torch.float16
        assert torch.tensor([1, 2]).sum().dtype is torch.int64


def test_the_rules_of_the_process_return(precision: EmulatedFp16Mixed) -> None:
    x = torch.randn(2, 2)
    before = autocast_ops("AutocastCPU")
    with cuda_rules():
        with cuda_rules():
            pass
        with torch.autocast("cpu", dtype=torch.float16):
            assert (x @ x).softmax(0).dtype is torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).softmax(0).dtype is torch.bfloat16
    assert autocast_ops("AutocastCPU") == before


def test_double_backward_runs(precision: EmulatedFp16Mixed) -> None:
    layer, x = nn.Linear(3, 1), torch.randn(4, 3, requires_grad=True)
    with precision.applied(layer):
        with precision.forward():
            y = layer(x)
        (slope,) = torch.autograd.grad(y.float().sum(), x, create_graph=True)
        slope.pow(2).sum().backward()
    assert layer.weight.grad is not None
