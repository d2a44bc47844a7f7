"""A model with products that tensor cores take, and configurations of runs on the first GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amp_core import Metric, Workload
from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.workload import Split

FILE = str(Path(__file__))


class GpuMlp(Workload):
    """A regression by layers of 512."""

    lr: float = 1e-3
    width: int = 512
    rows: int = 256
    primary = Metric("loss", False, 0.01, relative=True)

    def model(self) -> nn.Module:
        inner = [nn.Linear(self.width, self.width), nn.GELU(), nn.LayerNorm(self.width)]
        return nn.Sequential(nn.Linear(64, self.width), *inner, nn.Linear(self.width, 16))

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(4):
            x = torch.randn(self.rows, 64, generator=generator)
            yield x, x[:, :16].tanh()


class Hoard(GpuMlp):
    """Asks for more memory than any GPU has."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        huge = torch.empty(2**45, device=batch[0].device)
        return super().loss(model, batch) + huge[0]


def config_of(recipe: str | dict[str, Any], device: str = "cuda", **fields: Any) -> RunConfig:
    """A run of 40 steps with seed 3, unless said otherwise."""
    given = {"steps": 40, "seed": 3, "eval_every": 1000, **fields}
    workload = given.pop("workload", WorkloadRef(name="gpu-mlp", path=FILE))
    return RunConfig(run_id=1, attempt=1, workload=workload, recipe=parse_recipe(recipe), device=device, **given)
