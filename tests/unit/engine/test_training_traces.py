"""The engine's loss trace equals, bit for bit, what a plain hand-written loop gives for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from small_workloads import DropoutNet, config_of, series_of
from torch import Tensor, nn
from torch.nn import functional

from amp_core.seeding import stream_seed
from amp_core.training import train

STEPS, SEED = 30, 3
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def batches(workload: DropoutNet) -> Iterator[tuple[Tensor, Tensor]]:
    epoch = 0
    while True:
        yield from workload.batches("train", stream_seed(SEED, "data", epoch))
        epoch += 1


def plain_loop(loss_of: Loss, scaler: torch.amp.GradScaler | None, *, unscale: bool, fused: bool) -> list[float]:
    """An ordinary torch loop, as its documentation shows it."""
    workload = DropoutNet()
    torch.manual_seed(SEED)
    model = workload.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=fused)
    torch.manual_seed(stream_seed(SEED, "dropout"))
    losses = []
    data = batches(workload)
    for _ in range(STEPS):
        x, y = next(data)
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
    return losses


def autocast_loss(dtype: torch.dtype | None) -> Loss:
    def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype) if dtype is not None else nullcontext():
            return functional.mse_loss(model(x), y)

    return loss_of


def emulated_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Round, multiply in fp32, round, written out for this one model; layer_norm and the loss in fp32 as on CUDA."""
    first, gelu, dropout, norm, last = model
    hidden = dropout(gelu(rounded_linear(x, first)))
    hidden = functional.layer_norm(hidden.float(), norm.normalized_shape, norm.weight, norm.bias, norm.eps)
    return functional.mse_loss(rounded_linear(hidden, last).float(), y)


def rounded_linear(x: Tensor, layer: nn.Linear) -> Tensor:
    x16, w16, b16 = x.half(), layer.weight.half(), layer.bias.half()
    return functional.linear(x16.float(), w16.float(), b16.float()).half()


class Unfused(DropoutNet):
    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-2, fused=False)


def engine(recipe: str | dict[str, Any], workload: DropoutNet | None = None, **fields: Any) -> list[float]:
    config = config_of(recipe, steps=STEPS, seed=SEED, **fields)
    trace = series_of(train(config, workload or DropoutNet()))["train/loss"]
    assert list(trace) == list(range(1, STEPS + 1))
    return list(trace.values())


NATIVE = {"precision": "16-mixed", "fp16_compute": "native"}
RECIPES: dict[str, tuple[Any, Loss, bool]] = {
    "32-true": ("32-true", autocast_loss(None), False),
    "bf16-mixed": ("bf16-mixed", autocast_loss(torch.bfloat16), False),
    "16-mixed native": (NATIVE, autocast_loss(torch.float16), True),
    "16-mixed native without scaler": ({**NATIVE, "scaler": "none"}, autocast_loss(torch.float16), False),
    "16-mixed emulated": ("16-mixed", emulated_loss, True),
    "16-mixed emulated without scaler": ({"precision": "16-mixed", "scaler": "none"}, emulated_loss, False),
}


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "unfused"])
@pytest.mark.parametrize("name", RECIPES)
def test_trace_is_that_of_a_plain_loop(name: str, fused: bool) -> None:
    recipe, loss_of, scaled = RECIPES[name]
    scaler = torch.amp.GradScaler("cpu") if scaled else None
    expected = plain_loop(loss_of, scaler, unscale=False, fused=fused)
    assert engine(recipe, DropoutNet() if fused else Unfused()) == expected
    assert len(set(expected)) == STEPS


@pytest.mark.parametrize("name", ["16-mixed native", "16-mixed emulated"])
def test_trace_with_overflows_is_that_of_grad_scaler(name: str) -> None:
    """A start far too high: several skipped steps, and growth soon after."""
    recipe, loss_of, _ = RECIPES[name]
    options = {"init_scale": 2.0**30, "growth_interval": 4}
    given = {"precision": "16-mixed", "scaler": options} | ({} if isinstance(recipe, str) else recipe)
    expected = plain_loop(loss_of, torch.amp.GradScaler("cpu", **options), unscale=True, fused=True)
    assert engine({**given, "scaler": options}) == expected


@pytest.mark.parametrize("recipe", ["32-true", "16-mixed"])
def test_telemetry_changes_nothing(recipe: str) -> None:
    watched = engine(recipe, numerics_every=1, eval_every=2, flush_interval_s=0.0)
    assert watched == engine(recipe, numerics_every=1000)


def test_recipes_share_weights_data_and_dropout() -> None:
    """The first loss differs by rounding only; another dropout mask or batch would move it by far more."""
    first = [engine(recipe)[0] for recipe in ("32-true", "bf16-mixed", "16-mixed", NATIVE)]
    assert max(first) / min(first) - 1 < 0.01


def test_seeds_differ_and_repeat() -> None:
    def losses(seed: int) -> list[float]:
        return list(series_of(train(config_of("32-true", seed=seed), DropoutNet()))["train/loss"].values())

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


def test_perturbed_weights_start_close_and_drift() -> None:
    plain, control = engine("32-true"), engine("32-true", init_perturbation=1e-6)
    assert plain != control
    assert control[0] == pytest.approx(plain[0], rel=1e-4)
    assert engine("32-true", init_perturbation=1e-6) == control
