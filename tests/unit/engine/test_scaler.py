"""Loss scaling equals `torch.amp.GradScaler` step for step, and says what happened."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from amp_core.config import Scaler
from amp_core.scaler import LossScaler

CPU = torch.device("cpu")


def one_step(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, weight: nn.Parameter, slope: float
) -> None:
    optimizer.zero_grad()
    scaler.scale((weight * slope).sum()).backward()
    scaler.unscale_(optimizer)


@settings(deadline=None)
@given(
    slopes=st.lists(st.sampled_from([1.0, 0.5, 1e-3, float("inf"), float("nan"), 3e38]), min_size=1, max_size=25),
    init_scale=st.sampled_from([1.0, 2.0**10, 2.0**16]),
    growth_interval=st.integers(1, 4),
    fused=st.booleans(),
)
def test_dynamic_is_grad_scaler(slopes: list[float], init_scale: float, growth_interval: int, fused: bool) -> None:
    options = {"init_scale": init_scale, "growth_interval": growth_interval}
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [torch.optim.Adam([weight], lr=0.1, fused=fused) for weight in weights]
    ours, theirs = LossScaler("cpu", **options), torch.amp.GradScaler("cpu", **options)
    for slope in slopes:
        before, old = theirs.get_scale() if theirs._scale is not None else init_scale, weights[0].detach().clone()
        one_step(ours, optimizers[0], weights[0], slope)
        outcome = ours.finish(optimizers[0])
        one_step(theirs, optimizers[1], weights[1], slope)
        theirs.step(optimizers[1])
        theirs.update()
        assert (outcome.scale_before.item(), outcome.scale_after.item()) == (before, theirs.get_scale())
        assert torch.equal(weights[0], weights[1])
        assert ours.state_dict() == theirs.state_dict()
        if outcome.found_inf.item() > 0:
            assert torch.equal(weights[0], old), "a skipped step changes nothing"


@pytest.mark.parametrize("fused", [True, False])
def test_static_skips_but_never_moves(fused: bool) -> None:
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=fused)
    scaler = LossScaler.of(Scaler(kind="static", init_scale=128.0, growth_interval=1), CPU)
    found = []
    for slope in (1.0, float("inf"), 1.0):
        one_step(scaler, optimizer, weight, slope)
        outcome = scaler.finish(optimizer)
        found.append(outcome.found_inf.item() > 0)
        assert outcome.scale_before.item() == outcome.scale_after.item() == 128.0
    assert found == [False, True, False]
    assert weight.tolist() == pytest.approx([0.8, 0.8])


def test_none_neither_scales_nor_skips() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = LossScaler.of(Scaler(kind="none"), CPU)
    one_step(scaler, optimizer, weight, float("inf"))
    outcome = scaler.finish(optimizer)
    assert (outcome.found_inf.item(), outcome.scale_before.item(), outcome.scale_after.item()) == (0.0, 1.0, 1.0)
    assert weight.item() == float("-inf")


def test_scale_zero_is_torchs_own_dead_end() -> None:
    """166 overflows halve 65536 to exactly 0, as GradScaler does; the record shows it."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)
    scaler = LossScaler.of(Scaler(), CPU)
    for _ in range(166):
        one_step(scaler, optimizer, weight, float("inf"))
        scaler.finish(optimizer)
    assert scaler.current_scale.item() == 0.0
    assert weight.item() == 1.0


def test_finish_demands_unscaled_gradients() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = LossScaler.of(Scaler(), CPU)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(AssertionError, match="unscale_"):
        scaler.finish(optimizer)
