"""Outside the worker: where the recipe comes from, and where telemetry goes."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import nn

from amp_core.errors import ContractError, RecipeError
from amp_core.events import Failed, Segment, StepSkipped
from amp_core.script.engine import Engine
from amp_core.script.sinks import Tracked
from amp_core.script.start import begin
from amp_core.script.surroundings import surroundings
from amp_core.telemetry.recorder import Recorder


class Run:
    """Stands for `amp_core.tracking.TrackedRun`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def log(self, metrics: dict[str, float], step: int) -> None:
        self.calls.append((step, metrics))

    def finish(self) -> None:
        self.calls.append(("finish",))

    def fail(self, message: str, traceback: str) -> None:
        self.calls.append(("fail", message))


def test_the_recipe_is_an_argument_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPBOARD_RECIPE", raising=False)
    assert begin(None, None, None, None, None).config.recipe.precision == "32-true"
    monkeypatch.setenv("AMPBOARD_RECIPE", "bf16")
    assert begin(None, None, None, None, None).config.recipe.precision == "bf16-mixed"
    assert begin("16-mixed", None, None, None, None).config.recipe.precision == "16-mixed"
    monkeypatch.setenv("AMPBOARD_RECIPE", '{"precision": "16-mixed", "scaler": "static"}')
    scaler = begin(None, None, None, None, None).config.recipe.scaler
    assert scaler is not None
    assert scaler.kind == "static"
    monkeypatch.setenv("AMPBOARD_RECIPE", "{nonsense")
    with pytest.raises(RecipeError, match="no JSON object"):
        begin(None, None, None, None, None)


def test_generators_are_seeded_only_when_asked() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    begin("32-true", None, None, None, None)
    assert torch.equal(torch.rand(3), expected)
    begin("32-true", 7, None, None, None)
    first = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(first, torch.rand(3))


def test_surroundings_that_lead_nowhere_are_told() -> None:
    assert surroundings({}) is None
    with pytest.raises(ContractError, match="does not lead to a run"):
        surroundings(
            {"AMPBOARD_SCRIPT_RUN": "/nonexistent", "AMPBOARD_SCRIPT_EVENTS": "e", "AMPBOARD_SCRIPT_LINE": "l"}
        )


def test_a_tracked_run_gets_every_point_and_the_end() -> None:
    run = Run()
    sink = Tracked(cast(Any, run))
    recorder = Recorder()
    for step in (1, 2):
        recorder.add("train/loss", step, 1.0 / step)
    recorder.add("eval/accuracy", 2, 0.5)
    segment = recorder.segment()
    assert isinstance(segment, Segment)
    sink.send(segment)
    sink.send(StepSkipped(step=2, scale_before=2.0, scale_after=1.0))
    sink.send(Failed(kind="exception", message="no more"))
    assert run.calls == [(1, {"train/loss": 1.0}), (2, {"train/loss": 0.5, "eval/accuracy": 0.5}), ("fail", "no more")]


def test_a_script_without_a_worker_trains_and_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMPBOARD_RECIPE", raising=False)
    amp = Engine.from_env({"precision": "bf16-mixed"}, seed=0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.prepare(model, optimizer)
    before = model.weight.detach().clone()
    with amp.step() as s:
        loss = model(torch.ones(2, 4))
        assert loss.dtype is torch.bfloat16
        s.backward(loss.square().mean())
        optimizer.step()
    amp.finish()
    assert not torch.equal(model.weight, before)
    assert model(torch.ones(2, 4)).dtype is torch.float32
