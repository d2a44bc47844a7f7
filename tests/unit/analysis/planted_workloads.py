"""Workloads with modules that low precision cannot carry, planted at places the tests know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from amp_core import Workload
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.workload import Split


class Plain(nn.Module):
    """A residual layer that any precision can carry."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.1 * torch.tanh(self.linear(x))


class Tall(nn.Linear):
    """A linear layer with a detour through values above fp16's range: exact in FP32, infinite in fp16."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x * 3e6) / 3e6


class Swamped(nn.Linear):
    """A linear layer whose outputs pass through a large offset: fp16 keeps no digit of them."""

    def forward(self, x: Tensor) -> Tensor:
        offset = 32768.0
        return nn.functional.linear(x, self.weight, self.bias + offset) - offset


class Detoured(nn.Linear):
    """A linear layer whose outputs go above fp16's range and return: exact in FP32, infinite in fp16."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 3e6 / 3e6


class Culprit(Plain):
    """A residual layer around a layer that fails."""

    def __init__(self, width: int, kind: type[nn.Linear]) -> None:
        super().__init__(width)
        self.linear = kind(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.linear(x))


class Planted(Workload):
    """Residual layers in a chain; ``tall``, ``swamped`` and ``detoured`` name places of those that fail: ``3,17``."""

    depth: int = 12
    width: int = 16
    tall: str = ""
    swamped: str = ""
    detoured: str = ""
    lr: float = 1e-3

    def model(self) -> nn.Module:
        kinds: dict[int, type[nn.Linear]] = {int(place): Tall for place in self.tall.split(",") if place}
        kinds |= {int(place): Swamped for place in self.swamped.split(",") if place}
        kinds |= {int(place): Detoured for place in self.detoured.split(",") if place}
        layers = [
            Culprit(self.width, kinds[place]) if place in kinds else Plain(self.width) for place in range(self.depth)
        ]
        return nn.Sequential(nn.Linear(8, self.width), *layers, nn.Linear(self.width, 4))

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(8):
            x = torch.randn(16, 8, generator=generator)
            yield x, x[:, :4].tanh()


def config_of(kind: str, recipe: str | dict[str, Any], **options: Any) -> RunConfig:
    """An analysis of a short training with seed 3."""
    return RunConfig(
        run_id=1,
        attempt=1,
        kind=kind,  # type: ignore[arg-type]  # one of RunKind
        workload=WorkloadRef(name="planted", path=__file__),
        recipe=parse_recipe(recipe),
        options=options,
        seed=3,
        steps=50,
    )
