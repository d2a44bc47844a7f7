"""Bytes saved for backward: each storage once, weights left out, as counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from amp_core.config import parse_recipe
from amp_core.precision import precision_for
from amp_core.telemetry.memory import SavedBytes, process_bytes


def saved_by(dtype: torch.dtype | None) -> int:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    x, y = torch.randn(256, 64), torch.randn(256, 32)
    saved = SavedBytes(model)
    with saved.measured():
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = functional.mse_loss(model(x), y)
        loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    return saved.total


def test_fp32_saves_input_hidden_output_and_target() -> None:
    """ReLU's result is saved by ReLU and by the next layer: one storage."""
    assert saved_by(None) == 4 * 256 * (64 + 128 + 32 + 32)


def test_bf16_saves_half_and_the_weight_copies() -> None:
    activations = 2 * 256 * (64 + 128) + 4 * 256 * 32 + 4 * 256 * 32  # the loss is computed in fp32
    weights = 2 * 128 * 32  # the cast copy of the second weight; the first needs none, its input has no gradient
    assert saved_by(torch.bfloat16) == activations + weights


@pytest.mark.parametrize("how", ["stored low", "autocast", "emulated"])
def test_a_two_layer_mlp_saves_half_of_its_activations(how: str) -> None:
    """Input and hidden layer, 256 rows of 768 and 1024: 1,835,008 bytes, in 16 bits 917,504."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(768, 1024), nn.ReLU(), nn.Linear(1024, 64))
    x = torch.randn(256, 768)
    exact = SavedBytes(model)
    with exact.measured():
        model(x).sum().backward()
    assert (exact.total, exact.weight_copies) == (1_835_008, 0)
    copies = 2 * 1024 * 64  # of the second weight: the gradient of the hidden layer needs it
    recipe = parse_recipe({"stored low": "bf16-true", "autocast": "bf16-mixed", "emulated": "16-mixed"}[how])
    precision = precision_for(recipe, torch.device("cpu"))
    precision.prepare(model)
    saved = SavedBytes(model)
    with precision.applied(model), saved.measured():
        with precision.forward():
            loss = model(x).sum()
        loss.backward()
    if how == "emulated":  # products of rounded values are computed, and saved, in FP32
        assert saved.weight_copies == 2 * copies
        return
    assert saved.weight_copies == (0 if how == "stored low" else copies)
    assert saved.total - saved.weight_copies == 917_504


def test_results_do_not_change() -> None:
    def gradient(watch: bool) -> torch.Tensor:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 1))
        x = torch.randn(4, 8)
        if watch:
            with SavedBytes(model).measured():
                model(x).sum().backward()
        else:
            model(x).sum().backward()
        assert model[0].weight.grad is not None
        return model[0].weight.grad

    assert torch.equal(gradient(True), gradient(False))


def test_process_bytes_grow_with_what_is_held() -> None:
    before = process_bytes()
    held = torch.ones(32 * 1024 * 1024 // 4)
    assert process_bytes() - before > 24 * 1024 * 1024
    assert held.sum() > 0
