"""One small workload with a switch for each fault that a run may meet; read by the child process of tests as a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core import Workload


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Linear(32, 32)
        self.last = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.second(torch.relu(self.first(x)))))
        return out


class Faulty(Workload):
    """Regression with a fault of choice."""

    fault: str = "none"

    def model(self) -> nn.Module:
        return Net()

    def batches(self, split: str, seed: int) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(seed)
        for number in range(12):
            x = torch.randn(16, 8, generator=generator)
            target = x[:, :1].clamp(-1, 1)
            if split == "train" and self.fault == "huge-batch" and number == 7:
                x = x * 3e5
            yield x, target

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        output = model(batch[0])
        if self.fault == "mask":
            output = output.masked_fill(output > 99, -1e9)
        if self.fault == "offset":
            output = (output + 300.0) - 300.0
        if self.fault == "own":
            output = output / (output * 0).sum()
        loss = functional.mse_loss(output.float(), batch[1])
        return loss * 1e-7 if self.fault == "tiny" else loss
