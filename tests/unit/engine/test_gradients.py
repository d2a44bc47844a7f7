"""Counting underflow equals casting; norms and counts equal their plain definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from amp_core.telemetry.gradients import (
    GradientNorms,
    count_gradients,
    forward_order,
    fp16_underflow_count,
    gradient_norms,
    owners,
    underflow_fraction,
)

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)
SMALL = st.floats(min_value=-(2.0**-20), max_value=2.0**-20, width=32)
EDGES = [0.0, -0.0, 2.0**-24, 2.0**-25, -(2.0**-25), float(np.nextafter(np.float32(2**-25), np.float32(1))), 2.0**-26]


@settings(deadline=None)
@given(st.lists(FLOATS | SMALL, min_size=1, max_size=50), st.integers(-8, 24))
@example(EDGES, 0)
@example([edge / 65536 for edge in EDGES], 16)
@example([1e-45, -1e-45, 2.0**-149], 0)
@example([2.0**-25 * 1.0001, 65519.0, 65520.0, float("nan"), float("inf")], 0)
def test_underflow_count_is_what_casts_do(values: list[float], exponent: int) -> None:
    """Against NumPy's cast and torch's, both of the scaled value."""
    tensor = torch.tensor(values, dtype=torch.float32)
    scale = 2.0**exponent
    with np.errstate(over="ignore", invalid="ignore"):
        numpy = tensor.numpy() * np.float32(scale)
        by_numpy = int(((numpy.astype(np.float16) == 0) & (tensor.numpy() != 0)).sum())
    by_torch = int((((tensor * scale).half() == 0) & (tensor != 0)).sum())
    assert fp16_underflow_count(tensor, scale).item() == by_numpy == by_torch
    assert fp16_underflow_count(tensor, torch.tensor(scale)).item() == by_numpy


def test_edges_as_literals() -> None:
    lost = [fp16_underflow_count(torch.tensor([value])).item() for value in EDGES]
    assert lost == [0, 0, 0, 1, 1, 0, 1]


def model_with_gradients() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 2))
    model[1](model[0](torch.randn(5, 3))).pow(2).sum().backward()
    model[2].weight.grad = torch.zeros(2, 4)
    return model


def test_norms_are_those_of_each_parameter() -> None:
    model = model_with_gradients()
    norms = gradient_norms(list(model.parameters()))
    assert norms is not None
    expected = [0.0 if p.grad is None else float(p.grad.norm()) for p in model.parameters()]
    assert norms.tolist() == pytest.approx(expected)
    assert gradient_norms([nn.Parameter(torch.ones(1))]) is None


def test_norms_follow_gradients_that_go_missing_and_return() -> None:
    model = model_with_gradients()
    parameters = list(model[2].parameters())
    norms = GradientNorms(parameters)
    for present in ([True, False], [False, False], [True, True]):
        for parameter, there in zip(parameters, present, strict=True):
            parameter.grad = torch.full_like(parameter, 3.0) if there else None
        found = norms()
        expected = [float(p.grad.norm()) if p.grad is not None else 0.0 for p in parameters]
        assert (found is None) == (not any(present))
        assert [float(norm) for norm in found or ()] == pytest.approx(expected if any(present) else [])


def test_norms_of_halves_do_not_overflow() -> None:
    parameter = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    parameter.grad = torch.full_like(parameter, 6e4)
    (norm,) = GradientNorms([parameter])() or ()
    assert (norm.dtype, float(norm)) == (torch.float32, pytest.approx(2 * 6e4, rel=1e-3))


def test_counts_against_a_reference() -> None:
    model, exact = model_with_gradients(), model_with_gradients()
    assert model[0].weight.grad is not None
    model[0].weight.grad[:2] = 0.0
    model[0].bias.grad = torch.tensor([float("nan"), 1.0, 2.0, -9.0])
    rows = count_gradients(owners(model), owners(exact))
    assert [row.module for row in rows] == ["0", "2"], "a module without gradients is left out"
    lost = int((exact[0].weight.grad[:2] != 0).sum())
    nonzero = int((exact[0].weight.grad != 0).sum() + (exact[0].bias.grad != 0).sum())
    assert (rows[0].lost, rows[0].nonzero, rows[0].num_elements) == (lost, nonzero, 16)
    assert math.isnan(rows[0].max_abs)
    assert rows[1].zero_fraction == 1.0
    assert rows[1].statistics().underflow_fraction == 0.0, "zero in the reference too: not an underflow"
    assert underflow_fraction(rows) == lost / nonzero
    without = count_gradients(owners(model))
    assert math.isnan(without[0].statistics().underflow_fraction)
    assert without[0].zeros == rows[0].zeros


def test_sparse_gradients_count_their_stored_values() -> None:
    table = nn.Embedding(10, 3, sparse=True)
    table(torch.tensor([1, 1, 4])).sum().backward()
    (row,) = count_gradients(owners(table))
    assert (row.num_elements, row.zeros, row.max_abs) == (6, 0, 2.0)
    norms = gradient_norms(list(table.parameters()))
    assert norms is not None
    assert norms.item() == pytest.approx(math.sqrt(3 * 4 + 3 * 1))


class Reordered(nn.Module):
    """Defined in another order than it runs, with one module whose weights only its parent uses."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 1)
        self.held = nn.Linear(4, 4)
        self.first = nn.Linear(2, 4)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) @ self.held.weight
        return self.last(hidden) * self.scale


def test_modules_come_in_forward_order() -> None:
    model = Reordered()
    order, loss = forward_order(model, lambda: model(torch.ones(1, 2)).sum())
    assert [owner.module for owner in owners(model, order)] == ["", "first", "last", "held"]
    assert loss.requires_grad
    assert not any(module._forward_pre_hooks for module in model.modules())
