"""A script's closely watched steps say what a workload's say, and its own GradScaler is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from scripts_at_hand import NATIVE_FP16, Collected, config_of, engine_of, run_example
from torch import Tensor, nn
from torch.nn import functional

from amp_core import Metric, Workload
from amp_core.errors import ContractError
from amp_core.events import EffectivePrecision, Event, ExponentHistograms, Numerics
from amp_core.script.engine import Engine
from amp_core.telemetry.exponents import unpack
from amp_core.training import train
from amp_core.workload import Split

STEPS = 11
EMULATED_FP16 = {"precision": "16-mixed", "scaler": {"kind": "dynamic", "init_scale": 1024.0}}
SERIES = (
    "memory/saved_for_backward_bytes", "memory/saved_weight_copies_bytes", "perf/flops_per_step",
    "memory/weights_bytes", "memory/gradients_bytes", "memory/optimizer_bytes", "train/loss", "grad/norm",
)  # fmt: skip


class Net(nn.Module):
    """Its modules run in another order than they are defined in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(24, 4)
        self.norm = nn.LayerNorm(24)
        self.first = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.gelu(self.norm(self.first(x))))


class Regression(Workload):
    """The loop of `script` as a workload."""

    primary = Metric("loss", False, 0.01, relative=True)

    def model(self) -> nn.Module:
        torch.manual_seed(3)
        return Net()

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=1e-2)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return functional.mse_loss(model(batch[0]), batch[1])

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            x = torch.randn(16, 8, generator=generator)
            yield x, x[:, :4].tanh()


def script(amp: Engine) -> None:
    workload = Regression()
    model = workload.model()
    optimizer = workload.optimizer(model.parameters())
    amp.prepare(model, optimizer)
    for x, y in workload.batches("train", 0):
        with amp.step() as s:
            s.backward(functional.mse_loss(model(x), y))
            torch.linalg.norm(model.first.weight @ model.first.weight.T)  # a product of the loop's own: no part of it
            optimizer.step()
        optimizer.zero_grad()
    amp.finish()


def as_workload(recipe: Any) -> Collected:
    config = config_of(recipe, steps=STEPS, eval_every=100, diagnose_s=0.0)
    return Collected(list(train(config, Regression())))


def as_script(recipe: Any) -> Collected:
    with engine_of(recipe, steps=STEPS) as (amp, collected):
        script(amp)
    return collected


def without_times(event: Event) -> Any:
    told = msgspec.to_builtins(event)
    if isinstance(event, EffectivePrecision):
        del told["seconds"]
        for row in (*told["operations"], *told["casts"]):
            del row["seconds"]
        for name in ("operations", "casts"):  # of no module: the loss, and what unscaling a workload's gradients takes
            told[name] = sorted((row for row in told[name] if row["module"]), key=str)
    return told


@pytest.mark.parametrize(
    "recipe", ["32-true", "bf16-mixed", EMULATED_FP16, {"precision": "bf16-mixed", "fp32_modules": ["norm"]}], ids=str
)
def test_a_script_tells_what_the_same_workload_tells(recipe: Any) -> None:
    theirs, ours = as_workload(recipe), as_script(recipe)
    for kind in (EffectivePrecision, ExponentHistograms):
        expected = [without_times(event) for event in theirs.all(kind)]
        assert expected
        assert [without_times(event) for event in ours.all(kind)] == expected
    assert ours.all(EffectivePrecision)[0].took_effect
    statistics = [
        [
            (event.step, row.module, row.zero_fraction, row.max_abs)
            for event in found.all(Numerics)
            for row in event.modules
        ]
        for found in (theirs, ours)
    ]
    assert statistics[0] == statistics[1]
    expected_series, series = theirs.series(), ours.series()
    assert {name: series[name] for name in SERIES} == {name: expected_series[name] for name in SERIES}


def test_two_optimizers_make_one_event_of_each_kind_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_example("gan", "bf16-mixed", 0, monkeypatch)
    events = found.all(ExponentHistograms)
    keys = [(event.step, event.kind) for event in events]
    assert len(keys) == len(set(keys))
    first = next(event for event in events if event.kind == "gradients")
    prefixes = {module.split(".")[0] for module in first.modules}
    assert prefixes == {"0", "1"}, "generator and discriminator"
    assert len(unpack(first.counts)) == len(first.modules)
    (proof,) = found.all(EffectivePrecision)
    assert {row.module.split(".")[0] for row in proof.operations if row.flops} >= {"0", "1"}


def test_blocks_that_one_step_accumulates_are_one_proof() -> None:
    def run(blocks: int) -> Collected:
        with engine_of("bf16-mixed", steps=3) as (amp, collected):
            model = Regression().model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            amp.prepare(model, optimizer)
            for _ in range(3):
                for _ in range(blocks):
                    with amp.step() as s:
                        s.backward(model(torch.ones(4, 8)).pow(2).mean() / blocks)
                optimizer.step()
                optimizer.zero_grad()
            amp.finish()
        return collected

    once, thrice = run(1), run(3)
    (one,), (three,) = once.all(EffectivePrecision), thrice.all(EffectivePrecision)
    assert {dtype: 3 * flops for dtype, flops in one.flops.items()} == three.flops
    name = "memory/saved_for_backward_bytes"
    assert once.series()[name] == thrice.series()[name]


def test_modules_of_several_models_that_stay_in_fp32_are_known() -> None:
    recipe = {"precision": "bf16-mixed", "fp32_modules": ["last"]}
    with engine_of(recipe, steps=3) as (amp, collected):
        models = [Net(), nn.Linear(4, 1)]
        optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
        amp.prepare(*models, optimizer)
        for _ in range(3):
            with amp.step() as s:
                s.backward(models[1](models[0](torch.ones(4, 8))).mean())
                optimizer.step()
            optimizer.zero_grad()
        amp.finish()
    (proof,) = collected.all(EffectivePrecision)
    assert list(proof.kept_flops) == ["float32"]
    assert proof.took_effect


def scale_first(amp: Engine, model: nn.Module, optimizer: Any, scaler: torch.amp.GradScaler) -> None:
    with amp.step() as s:
        s.backward(scaler.scale(model(torch.ones(4, 8)).mean()))
        optimizer.step()


def step_by_it(amp: Engine, model: nn.Module, optimizer: Any, scaler: torch.amp.GradScaler) -> None:
    with amp.step() as s:
        s.backward(model(torch.ones(4, 8)).mean())
    scaler.step(optimizer)


def unscale_by_it(amp: Engine, model: nn.Module, optimizer: Any, scaler: torch.amp.GradScaler) -> None:
    with amp.step() as s:
        s.backward(model(torch.ones(4, 8)).mean())
        scaler.unscale_(optimizer)


@pytest.mark.parametrize("recipe", ["32-true", "bf16-mixed", NATIVE_FP16], ids=str)
@pytest.mark.parametrize("body", [scale_first, step_by_it, unscale_by_it])
def test_a_scaler_of_its_own_is_told_with_the_remedy(body: Any, recipe: Any) -> None:
    with engine_of(recipe) as (amp, _):
        model = Regression().model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        amp.prepare(model, optimizer)
        with pytest.raises(ContractError, match=r"of your own .* remove the scaler, and call s\.backward\(loss\)"):
            body(amp, model, optimizer, torch.amp.GradScaler("cpu"))


def test_a_disabled_scaler_and_one_of_another_model_may_stay() -> None:
    methods = [torch.amp.GradScaler.scale, torch.amp.GradScaler.unscale_, torch.amp.GradScaler.step]
    with engine_of("bf16-mixed") as (amp, collected):
        model, other = Regression().model(), nn.Linear(2, 1)
        optimizer, others = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, other))
        amp.prepare(model, optimizer)
        disabled, own = torch.amp.GradScaler("cpu", enabled=False), torch.amp.GradScaler("cpu")
        with amp.step() as s:
            s.backward(disabled.scale(model(torch.ones(4, 8)).mean()))
            disabled.step(optimizer)
        own.scale(other(torch.ones(1, 2)).sum()).backward()
        own.step(others)
        own.update()
        amp.finish()
    assert collected.series()["train/loss"]
    assert [torch.amp.GradScaler.scale, torch.amp.GradScaler.unscale_, torch.amp.GradScaler.step] == methods
