"""Workloads without dropout and batch statistics, so that one process and several compute the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core import Workload
from amp_core.workload import Split


class Blocks(Workload):
    """A small residual network with a module list, so that FSDP has blocks to shard."""

    rows: int = 16

    def model(self) -> nn.Module:
        return Residual()

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(6):
            x = torch.randn(self.rows, 8, generator=generator)
            yield x, x[:, :4].tanh()

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8)) for _ in range(2)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        head: Tensor = self.head(x)
        return head


class OneRankOverflows(Blocks):
    """The last rows of some batches, which only the last rank sees, hold a value that overflows fp16."""

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        for index, (x, y) in enumerate(super().batches(split, seed)):
            if split == "train" and index in (1, 4):
                y = y.clone()
                y[-1] = float("inf")
            yield x, y


class TwoAdams(Blocks):
    """Two optimizers with moments and counters, a schedule, and a layer whose rows two ranks cannot share evenly."""

    def model(self) -> nn.Module:
        model = Residual()
        model.head = nn.Sequential(nn.Linear(8, 5), nn.Dropout(0.2), nn.Linear(5, 4))
        return model

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        assert isinstance(model, Residual)
        return [
            torch.optim.AdamW(model.blocks.parameters(), lr=1e-2),
            torch.optim.Adam(model.head.parameters(), lr=1e-2),
        ]

    def schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


class Dropped(Blocks):
    """With dropout, whose masks differ from rank to rank; for resuming."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        x, y = batch
        return functional.mse_loss(model(functional.dropout(x, 0.2)), y)


class Fails(Blocks):
    """The last rank fails in the third step; the others wait for it."""

    calls = 0

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        import os

        self.calls += 1
        if self.calls > 3 and os.environ.get("RANK") == "1":
            raise ValueError("this rank has had enough")
        return super().loss(model, batch)


class Slow(Blocks):
    """Takes long enough to be cancelled."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        import time

        time.sleep(0.02)
        return super().loss(model, batch)
