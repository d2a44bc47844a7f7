"""What-if beside the real thing: casts, scalers, the run's own decisions, and another run's losses."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_workloads import Planted

from amp_core import training
from amp_core.config import RunConfig, Scaler, WorkloadRef, parse_recipe
from amp_core.events import Event, ExponentHistograms, Numerics, Segment
from amp_core.scaler import LossScaler
from amp_core.telemetry.exponent_counts import exponent_counts, histograms
from amp_core.telemetry.exponents import Histogram, merged, read
from amp_core.whatif.scaler_rules import RecordedStep, ScalerRule, replay_scaler
from amp_core.whatif.shares import best_scale, prediction_error, scale_power, shares_by_module

CASTS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _histogram(tensor: torch.Tensor) -> Histogram:
    return histograms([exponent_counts(tensor)])[0]


def test_shares_equal_real_casts_in_every_format_at_every_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    size = torch.exp2(torch.empty(4000).uniform_(-40, 20, generator=generator))
    tensors = {"a": torch.randn(4000, generator=generator) * size, "b": torch.randn(500, generator=generator)}
    modules = {name: _histogram(tensor) for name, tensor in tensors.items()}
    for name, dtype in CASTS.items():
        for power in (-8, -1, 0, 5, 16, 24):
            found = shares_by_module(modules, name, power)
            for module, tensor in tensors.items():
                scaled = tensor * 2.0**power
                cast = scaled.to(dtype).float()
                assert found[module].num_underflow == int(((cast == 0) & (scaled != 0)).sum()), (name, power)
                if name != "e4m3":
                    assert found[module].num_overflow == int((torch.isinf(cast) & torch.isfinite(scaled)).sum())


def test_the_best_scale_is_the_largest_that_does_not_overflow() -> None:
    gradient = torch.tensor([3e-6, -2e-7, 1e-9, 0.0])
    best = best_scale([_histogram(gradient)], "fp16")
    assert best is not None
    assert not torch.isinf((gradient * 2.0**best.power).half()).any()
    assert torch.isinf((gradient * 2.0 ** (best.power + 1)).half()).any()
    assert best.lossless is not None
    nonzero = gradient[gradient != 0]
    assert (nonzero * 2.0**best.lossless).half().ne(0).all()
    assert (nonzero * 2.0 ** (best.lossless - 1)).half().eq(0).any()
    assert best_scale([_histogram(torch.zeros(3))], "fp16") is None


def test_scales_that_are_no_powers_of_two_are_refused() -> None:
    assert (scale_power(65536.0), scale_power(0.25)) == (16, -2)
    for scale in (3.0, 0.0, -2.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="must be a power of two"):
            scale_power(scale)


@st.composite
def _scalers(draw: st.DrawFn) -> Scaler:
    kind = draw(st.sampled_from(["dynamic", "dynamic", "dynamic", "static", "none"]))
    init = draw(st.sampled_from([1.0, 3.0, 1024.0, 65536.0, 2.0**120]))
    if kind != "dynamic":
        return Scaler(kind=kind, init_scale=init)
    return Scaler(
        init_scale=init,
        growth_factor=draw(st.sampled_from([2.0, 1.5, 4.0])),
        backoff_factor=draw(st.sampled_from([0.5, 0.3])),
        growth_interval=draw(st.integers(1, 5)),
        hysteresis=draw(st.integers(1, 3)),
        hysteresis_refill=draw(st.sampled_from(["growth", "clean_step"])),
        min_scale=draw(st.sampled_from([0.0, 1.0])),
        max_scale=draw(st.sampled_from([None, init * 4.0])),
    )


@settings(max_examples=120, deadline=None)
@given(_scalers(), st.lists(st.booleans(), min_size=1, max_size=25))
def test_rules_equal_the_real_scaler_step_for_step(scaler: Scaler, overflows: list[bool]) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    real = LossScaler.of(scaler, torch.device("cpu"))
    rule = ScalerRule(scaler)
    for step, overflowed in enumerate(overflows):
        parameter.grad = torch.full((1,), math.inf if overflowed else 0.0)
        if real.is_enabled():
            real.scale(torch.zeros(()))
            real.unscale_(optimizer)
            outcome = real.finish(optimizer)
            expected = (float(outcome.scale_before), bool(outcome.found_inf > 0), float(outcome.scale_after))
        else:
            expected = (1.0, False, 1.0)
        decision = rule.decide(step, overflowed)
        assert (decision.scale_before, decision.skipped, decision.scale_after) == expected


class Faint(Planted):
    """The same with a loss so small that a good part of the gradients is below fp16's range."""

    def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return super().loss(model, batch) * 2.0**-13


def _train(recipe: dict[str, Any] | str, steps: int = 40, workload: type[Planted] = Planted) -> list[Event]:
    config = RunConfig(
        run_id=1,
        attempt=1,
        workload=WorkloadRef(name="planted", path=__file__),
        recipe=parse_recipe(recipe),
        steps=steps,
        eval_every=0,
        diagnose_s=0.0,
        numerics_every=1,
        seed=2,
    )
    return list(training.train(config, workload(depth=3)))


def _recorded(events: list[Event]) -> list[RecordedStep]:
    """The steps of a run as its series and histograms tell them."""
    series: dict[str, dict[int, float]] = {"amp/loss_scale": {}, "amp/skipped": {}}
    for event in events:
        for column in event.columns if isinstance(event, Segment) else ():
            if column.name in series:
                steps, values = (np.frombuffer(column.steps, "<i8"), np.frombuffer(column.values, "<f8"))
                series[column.name] |= dict(zip(steps.tolist(), values.tolist(), strict=True))
    sampled = {
        event.step: merged(read({"modules": event.modules, "counts": event.counts}).values())
        for event in events
        if isinstance(event, ExponentHistograms) and event.kind == "gradients"
    }
    return [
        RecordedStep(step=step, scale=scale, skipped=series["amp/skipped"][step] > 0, gradients=sampled.get(step))
        for step, scale in sorted(series["amp/loss_scale"].items())
    ]


@pytest.mark.parametrize(
    "scaler",
    [
        {"kind": "dynamic", "init_scale": 2.0**26, "growth_interval": 4},
        {"kind": "dynamic", "init_scale": 2.0**24, "growth_interval": 3, "hysteresis": 2},
        {"init_scale": 2.0**24, "growth_interval": 3, "hysteresis": 2, "hysteresis_refill": "clean_step"},
        {"kind": "dynamic", "init_scale": 2.0**24, "growth_interval": 3, "min_scale": 2.0**20, "max_scale": 2.0**25},
        {"kind": "static", "init_scale": 2.0**23},
    ],
)  # fmt: skip
def test_replayed_decisions_equal_the_runs_own(scaler: dict[str, Any]) -> None:
    steps = _recorded(_train({"precision": "16-mixed", "scaler": scaler}))
    assert len(steps) == 40
    assert any(one.skipped for one in steps), "a trajectory without a skip proves little"
    decisions = replay_scaler(Scaler(**scaler), steps)
    assert [(one.step, one.scale, one.skipped) for one in steps] == [
        (one.step, one.scale_before, one.skipped) for one in decisions
    ]
    assert all(first.scale_after == second.scale_before for first, second in pairwise(decisions))


def test_another_scaler_on_the_same_steps_is_predicted() -> None:
    """A run at a modest scale tells what a large one would have skipped; the error beside a real run is printed."""
    modest = _recorded(_train({"precision": "16-mixed", "scaler": {"kind": "static", "init_scale": 1024.0}}))
    bold = {"kind": "dynamic", "init_scale": 2.0**26, "growth_interval": 6}
    real = _recorded(_train({"precision": "16-mixed", "scaler": bold}))
    predicted = replay_scaler(Scaler(**bold), modest)
    skips = (sum(one.skipped for one in predicted), sum(one.skipped for one in real))
    off = max(abs(math.log2(a.scale_before / b.scale)) for a, b in zip(predicted, real, strict=True))
    print(f"skips predicted {skips[0]}, real {skips[1]}; scale off by at most 2^{off:.0f}")
    assert skips[0] > 0
    assert abs(skips[0] - skips[1]) <= 4
    assert off <= 2


def test_what_fp32_gradients_predict_of_a_real_fp16_run() -> None:
    """Shares of weights' gradients that fp16 loses without a scaler, predicted from FP32 and measured in the run."""
    unscaled = {"precision": "16-mixed", "scaler": "none"}
    told = [event for event in _train("fp32", 20, Faint) if isinstance(event, ExponentHistograms)]
    exact = {event.step: event for event in told if event.kind == "gradients"}
    real = {event.step: event for event in _train(unscaled, 20, Faint) if isinstance(event, Numerics)}
    pairs = []
    for step in exact.keys() & real.keys():
        modules = read({"modules": exact[step].modules, "counts": exact[step].counts})
        found = shares_by_module(modules, "fp16", 0)
        pairs += [(found[m.module].underflow, m.underflow_fraction) for m in real[step].modules if m.module in found]
    error = prediction_error(pairs)
    print(f"{error.pairs} shares: mean error {100 * error.mean:.3f} points, largest {100 * error.largest:.3f}")
    measured = [share for _, share in pairs]
    assert error.pairs >= 20
    assert sum(measured) / len(measured) > 0.03, "where nothing is lost, nothing is predicted"
    assert error.mean < 0.1
