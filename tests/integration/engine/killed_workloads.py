"""Workloads that runs of test_kill_and_resume.py train: slow enough to be killed in the middle."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from amp_core import Workload
from amp_core.workload import Split

PAUSE_S = 0.004


class Paused(Workload):
    """A regression with dropout whose loss also draws from Python's generator."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(24), nn.Linear(24, 4))

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(7):
            time.sleep(PAUSE_S)
            x = torch.randn(16, 8, generator=generator)
            yield x, x[:, :4].tanh()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) * (1 + random.random() / 10)


class PausedSchedule(Paused):
    """Two optimizers, one of them under a schedule."""

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        matrices = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim == 1]
        return [torch.optim.SGD(matrices, lr=0.02, momentum=0.9), torch.optim.AdamW(others, lr=1e-2, fused=True)]

    def schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler | None:
        if isinstance(optimizer, torch.optim.SGD):
            return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=steps)
        return None
