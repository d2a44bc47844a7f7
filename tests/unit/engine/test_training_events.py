"""What a run says while it trains: order and content of its events, and that watching costs the run nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from small_workloads import Classes, DropoutNet, Exploding, TinyLoss, config_of, events_of, series_of
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from amp_core.errors import Interrupted
from amp_core.events import (
    Evaluated,
    Event,
    Finished,
    Frame,
    NonFinite,
    Numerics,
    Segment,
    Started,
    StepSkipped,
    ZeroGradients,
    decode_body,
    encode_frame,
)
from amp_core.precision import precision_for
from amp_core.setup import build_step
from amp_core.training import Training, train

UNSCALED = {"precision": "16-mixed", "scaler": "none"}


def test_a_run_starts_finishes_and_travels() -> None:
    events = list(train(config_of("bf16-mixed", eval_every=10), Classes()))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert [(e.step, e.final) for e in events_of(events, Evaluated)] == [(10, False), (20, False), (30, True)]
    last = events_of(events, Evaluated)[-1]
    assert last.num_samples == 7 * 16
    assert set(last.metrics) == {"loss", "accuracy"}
    assert events[-1].metrics == last.metrics
    assert (events[-1].steps, events[-1].samples, events[-1].lost_samples) == (30, 480, 0)
    assert 0 < events[-1].warmup_s <= events[-1].train_s
    for event in events:
        frame = Frame(sequence=1, at=0.0, event=event)
        assert decode_body(encode_frame(frame)[4:]) == frame or "nan" in repr(event)


def test_environment_says_what_really_runs() -> None:
    started = next(iter(train(config_of("16-mixed", num_threads=1), DropoutNet())))
    assert isinstance(started, Started)
    assert started.numerics == "emulated"
    facts = json.loads(json.dumps(started.environment))
    assert facts["torch"] == torch.__version__
    assert facts["num_threads"] == 1
    assert facts["device"]["type"] == "cpu"
    assert facts["device"]["name"]
    assert facts["flags"]["tf32"] is False
    assert set(facts["flags"]["fp32_precision"].values()) == {"ieee"}
    assert facts["recipe"]["autocast"] == "float16"
    assert facts["recipe"]["autocast_lists"] == "cuda"
    assert started.num_parameters == sum(p.numel() for p in DropoutNet().model().parameters())


def test_backend_switches_return_after_the_run() -> None:
    before = torch.backends.mkldnn.matmul.fp32_precision
    list(train(config_of("32-true", steps=1), DropoutNet()))
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_series_are_complete_and_finite() -> None:
    series = series_of(train(config_of("16-mixed", eval_every=15), DropoutNet()))
    steps = list(range(1, 31))
    for name in ("train/loss", "grad/norm", "amp/loss_scale", "amp/skipped"):
        assert list(series[name]) == steps
    assert list(series["grad/underflow_fraction"]) == [1, 25, 30]
    assert list(series["perf/step_time_s"]) == [s for s in steps if s not in (1, 2, 25, 30)]
    assert series["memory/saved_for_backward_bytes"][2] > 0
    assert list(series["eval/loss"]) == [15, 30]
    assert all(value > 1e6 for value in series["memory/process_bytes"].values())
    assert all(math.isfinite(value) for points in series.values() for value in points.values())


def test_gradient_norm_is_after_unscaling() -> None:
    plain = series_of(train(config_of("32-true", steps=3), DropoutNet()))["grad/norm"]
    scaled = series_of(train(config_of("16-mixed", steps=3), DropoutNet()))["grad/norm"]
    assert list(scaled.values()) == pytest.approx(list(plain.values()), rel=0.02)


def test_skipped_steps_are_events_points_and_lost_samples() -> None:
    recipe = {"precision": "16-mixed", "scaler": {"init_scale": 2.0**30}}
    events = list(train(config_of(recipe), DropoutNet()))
    skipped = events_of(events, StepSkipped)
    series = series_of(events)
    assert len(skipped) > 3
    assert [event.step for event in skipped] == [s for s, value in series["amp/skipped"].items() if value]
    assert all(event.scale_after == event.scale_before / 2 for event in skipped)
    assert series["amp/loss_scale"][1] == 2.0**30
    finished = events_of(events, Finished)[0]
    assert finished.skipped_steps == len(skipped)
    assert finished.lost_samples == 16 * len(skipped)
    assert not events_of(events, NonFinite), "a skipped step is no fault"


def test_numerics_are_sampled_first_last_and_between() -> None:
    events = list(train(config_of("16-mixed", numerics_every=10), DropoutNet()))
    numerics = events_of(events, Numerics)
    assert [event.step for event in numerics] == [1, 10, 20, 30]
    assert [row.module for row in numerics[0].modules] == ["0", "3", "4"]
    assert numerics[0].loss_scale == 65536.0
    assert all(row.max_abs > 0 and row.num_elements > 0 for row in numerics[0].modules)


def test_native_recipes_compare_with_fp32_on_few_samples() -> None:
    events = list(train(config_of("bf16-mixed", numerics_every=2), DropoutNet()))
    measured = [e.step for e in events_of(events, Numerics) if not math.isnan(e.modules[0].underflow_fraction)]
    assert measured == [1, 16, 30]
    assert list(series_of(events)["grad/underflow_fraction"]) == measured


def test_vanished_gradients_are_reported_once_and_return_when_scaled() -> None:
    events = list(train(config_of(UNSCALED, numerics_every=5), TinyLoss()))
    (found,) = events_of(events, ZeroGradients)
    assert found.step == 1
    assert found.probe_scale == 65536.0
    assert found.zero_fraction["0"] >= 0.99
    assert found.probe.keys() == found.zero_fraction.keys()
    assert found.probe["0"] < 0.5, "scaled, they return"
    row = {row.module: row for row in events_of(events, Numerics)[0].modules}["0"]
    assert row.underflow_fraction > 0.9
    assert series_of(events)["grad/underflow_fraction"][1] > 0.5


def test_the_same_loss_in_fp32_has_no_zero_gradients() -> None:
    events = list(train(config_of("32-true"), TinyLoss()))
    assert not events_of(events, ZeroGradients)
    assert series_of(events)["grad/fp16_underflow_fraction"][1] > 0.9, "the prediction for fp16 without a scale"


def test_dead_weights_end_the_run_after_fifty_steps() -> None:
    events = list(train(config_of("32-true", steps=500, flush_interval_s=0.0), Exploding()))
    finished = events_of(events, Finished)[0]
    assert finished.steps == 6 + 50
    assert math.isnan(finished.metrics["loss"])
    found = [(event.step, event.where, event.value) for event in events_of(events, NonFinite)]
    assert found[:3] == [(6, "loss", "nan"), (6, "gradient", "nan"), (6, "weight", "nan")]
    assert found[3:] == [(56, "evaluation", "nan")]
    assert events_of(events, NonFinite)[1].name == "4.bias", "the parameter nearest to the loss"


def test_a_nan_loss_alone_does_not_end_a_run() -> None:
    """The scaler skips its step, the weights live on, and the loss is reported."""
    events = list(train(config_of("16-mixed", steps=80), Exploding()))
    assert events_of(events, Finished)[0].steps == 80
    assert [event.where for event in events_of(events, NonFinite)] == ["loss"]
    assert [event.step for event in events_of(events, StepSkipped)] == [6]


def test_interruption_hands_over_every_point() -> None:
    run = train(config_of("32-true", steps=500, flush_interval_s=1000.0, eval_every=40), DropoutNet())
    events = []
    for event in run:
        events.append(event)
        if isinstance(event, Evaluated):
            break
    events.append(run.throw(Interrupted()))
    events.extend(run)
    assert list(series_of(events)["train/loss"]) == list(range(1, 41))
    assert isinstance(events[-1], Segment)
    assert not events_of(events, Finished)


def test_interruption_before_the_first_step_ends_quietly() -> None:
    run = train(config_of("16-mixed"), DropoutNet())
    next(run)
    with pytest.raises(StopIteration):
        run.throw(Interrupted())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.ones(2, dtype=torch.bfloat16).softmax(0).dtype is torch.bfloat16, "the emulation is gone"


class FailsLater(DropoutNet):
    def batches(self, split: Any, seed: int) -> Any:
        yield from list(super().batches(split, seed))[:5]
        raise OSError("the disk is gone")


def test_points_come_before_the_error_that_ends_a_run() -> None:
    events: list[Event] = []
    with pytest.raises(OSError, match="the disk is gone"):
        events.extend(train(config_of("32-true", flush_interval_s=1000.0), FailsLater()))
    assert list(series_of(events)["train/loss"]) == [1, 2, 3, 4, 5]


class Uncopyable(TinyLoss):
    """Keeps an activation with its graph, which cannot be copied."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss = super().loss(model, batch)
        model.kept = loss * 2
        return loss


def test_a_model_that_cannot_be_copied_trains_without_probes() -> None:
    with pytest.warns(UserWarning, match="no probe of the gradients"):
        events = list(train(config_of(UNSCALED), Uncopyable()))
    assert isinstance(events[-1], Finished)
    assert events_of(events, ZeroGradients)[0].probe == {}
    assert math.isnan(events_of(events, Numerics)[0].modules[0].underflow_fraction)


def test_evaluation_only_at_the_end() -> None:
    events = list(train(config_of("32-true", eval_every=0), DropoutNet()))
    assert [event.step for event in events_of(events, Evaluated)] == [30]


class Reads(TorchDispatchMode):
    """Counts reads of device scalars: what ``.item()``, ``float()`` and branches on tensors do."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("recipe", ["32-true", "bf16-mixed", "16-mixed", UNSCALED])
def test_an_ordinary_step_never_reads_the_device(recipe: Any) -> None:
    """Between two looks at the numbers nothing waits: steps 3 to 24, with a fused optimizer."""
    config = config_of(recipe, steps=100, flush_interval_s=1000.0)
    precision = precision_for(config.recipe, torch.device("cpu"))
    step = build_step(DropoutNet(), config.recipe, precision, config.seed, config.steps)
    training = Training(config, step)
    with precision.applied(step.model):
        for number in (1, 2):
            list(training._train_one(number))
        with Reads() as reads:
            for number in range(3, 25):
                list(training._train_one(number))
    assert reads.count == 0
