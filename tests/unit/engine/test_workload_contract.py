"""What a workload may and may not do: pictures, random numbers, batches; errors name value, rule and remedy."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from small_workloads import DropoutNet, config_of, events_of, series_of
from torch import Tensor, nn

from amp_core.errors import RecipeError, WorkloadError
from amp_core.events import Artifact, Finished
from amp_core.training import train
from amp_core.workload import Workload

PICTURE = b"\x89PNG\r\n\x1a\n..."


class Pictures(DropoutNet):
    def artifacts(self, model: nn.Module) -> dict[str, bytes]:
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"output": PICTURE}


def test_artifacts_come_after_the_last_step() -> None:
    events = list(train(config_of("32-true"), Pictures()))
    (picture,) = events_of(events, Artifact)
    assert (picture.name, picture.media_type, picture.content, picture.step) == ("output", "image/png", PICTURE, 30)
    assert isinstance(events[-1], Finished)


class BrokenPictures(DropoutNet):
    def artifacts(self, model: nn.Module) -> dict[str, bytes]:
        raise ValueError("no font")


class WrongPictures(DropoutNet):
    def artifacts(self, model: nn.Module) -> dict[str, bytes]:
        return {"page": b"<html>", "output": PICTURE}


def test_a_picture_that_fails_does_not_fail_the_run() -> None:
    with pytest.warns(UserWarning, match="no pictures.*no font"):
        events = list(train(config_of("32-true"), BrokenPictures()))
    assert isinstance(events[-1], Finished)
    with pytest.warns(UserWarning, match="'page'.*is left out"):
        events = list(train(config_of("32-true"), WrongPictures()))
    assert [picture.name for picture in events_of(events, Artifact)] == ["output"]


class OneElement(DropoutNet):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch).reshape(1)


def test_a_loss_of_one_element_is_a_scalar() -> None:
    plain = series_of(train(config_of("32-true"), DropoutNet()))["train/loss"]
    assert series_of(train(config_of("32-true"), OneElement()))["train/loss"] == plain


class DrawsInEvaluation(DropoutNet):
    def metrics(self, model: nn.Module, batches: Any) -> dict[str, float]:
        torch.rand(10), np.random.rand(3), random.random()
        return super().metrics(model, batches)


def test_evaluation_leaves_no_trace() -> None:
    plain = series_of(train(config_of("32-true"), DropoutNet()))["train/loss"]
    drawn = series_of(train(config_of("32-true", eval_every=3), DrawsInEvaluation()))["train/loss"]
    assert plain == drawn


class Frozen(DropoutNet):
    def model(self) -> nn.Module:
        model = super().model()
        model[2].eval()
        return model


class EvalBatchesInAutocast(DropoutNet):
    def batches(self, split: Any, seed: int) -> Any:
        for x, y in super().batches(split, seed):
            assert not torch.is_autocast_enabled("cpu"), "batches are made outside autocast, in both splits"
            yield x @ torch.eye(8), y


def test_evaluation_batches_are_made_outside_autocast() -> None:
    list(train(config_of("16-mixed", steps=2), EvalBatchesInAutocast()))


class NoLoss(DropoutNet):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0])


class Detached(DropoutNet):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch).detach()


class Empty(DropoutNet):
    def batches(self, split: Any, seed: int) -> Any:
        return iter(())


class NoModel(DropoutNet):
    def model(self) -> Any:
        return "a model"


class HalfModel(DropoutNet):
    def model(self) -> nn.Module:
        return super().model().half()


class NoParameters(DropoutNet):
    def model(self) -> nn.Module:
        return nn.Identity()


class NoOptimizer(DropoutNet):
    def optimizer(self, parameters: Any) -> Any:
        return None


class TextMetrics(DropoutNet):
    def metrics(self, model: nn.Module, batches: Any) -> Any:
        return {"loss": "low"}


class Misshapen(DropoutNet):
    def model(self) -> nn.Module:
        return nn.Linear(8, 3)


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (NoLoss(), "return one scalar"),
        (Detached(), "depends on no parameter"),
        (Empty(), "yields nothing"),
        (NoModel(), "return an nn.Module"),
        (HalfModel(), "FP32"),
        (NoParameters(), "no trainable parameter"),
        (NoOptimizer(), "return a torch.optim.Optimizer"),
        (TextMetrics(), "numbers by name"),
        (Misshapen(), "differ in shape"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Workload) else "",
)
def test_a_workload_that_breaks_its_contract_is_told(workload: Workload, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        list(train(config_of("32-true", steps=1), workload))


@pytest.mark.parametrize(
    ("device", "message"), [("cuda", "choose cpu"), ("warp", "choose cpu or cuda"), ("meta", "choose cpu or cuda")]
)
def test_a_device_that_is_not_there_is_an_error(device: str, message: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(RecipeError, match=message):
        next(train(config_of("32-true", device=device), DropoutNet()))
