"""Small workloads and the pieces of event streams that engine tests read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from amp_core import Metric, Workload
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Event, Segment
from amp_core.workload import Split


class DropoutNet(Workload):
    """A regression with dropout, small enough for native fp16 on a CPU."""

    lr: float = 1e-2
    width: int = 24
    primary = Metric("loss", False, 0.01, relative=True)

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(8, self.width), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(self.width), nn.Linear(self.width, 4)
        )

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(7):
            x = torch.randn(16, 8, generator=generator)
            yield x, x[:, :4].tanh()


class WideNet(DropoutNet):
    """Layers that fit fp8, and a first and last one that do not."""

    width: int = 32

    def model(self) -> nn.Module:
        inner = [nn.Linear(self.width, self.width), nn.GELU(), nn.LayerNorm(self.width)]
        return nn.Sequential(nn.Linear(8, self.width), *inner, nn.Dropout(0.2), nn.Linear(self.width, 4))


class TinyLoss(DropoutNet):
    """The same with a loss so small that its gradients vanish in fp16 unless they are scaled."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) * 1e-8


class Exploding(DropoutNet):
    """The targets of the sixth batch are NaN."""

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        first_epoch = split == "train" and not hasattr(self, "begun")
        self.begun = True
        for index, (x, y) in enumerate(super().batches(split, seed)):
            yield x, y * float("nan") if first_epoch and index == 5 else y


class Classes(DropoutNet):
    """Four classes, for accuracy."""

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, y in super().batches(split, seed):
            yield x, y.argmax(dim=1)


def config_of(recipe: str | dict[str, Any], **fields: Any) -> RunConfig:
    """A run of 30 steps with seed 3, unless said otherwise."""
    given = {"steps": 30, "seed": 3, "eval_every": 1000, **fields}
    workload = WorkloadRef(name="small", path=__file__)
    return RunConfig(run_id=1, attempt=1, workload=workload, recipe=parse_recipe(recipe), **given)


def series_of(events: Iterable[Event]) -> dict[str, dict[int, float]]:
    """Values by series and step, from the segments of an event stream."""
    found: dict[str, dict[int, float]] = {}
    for event in events:
        if isinstance(event, Segment):
            for column in event.columns:
                steps = np.frombuffer(column.steps, dtype="<i8").tolist()
                values = np.frombuffer(column.values, dtype="<f8").tolist()
                assert len(np.frombuffer(column.times, dtype="<f8")) == len(steps)
                points = found.setdefault(column.name, {})
                assert not points.keys() & set(steps), "a point comes once"
                points.update(zip(steps, values, strict=True))
    return found


def events_of(events: Iterable[Event], kind: type) -> list[Any]:
    """The events of one kind, in order."""
    return [event for event in events if isinstance(event, kind)]
