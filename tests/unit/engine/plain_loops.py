"""Hand-written torch loops, as torch's own documentation writes them, to compare the engine with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from small_workloads import DropoutNet
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from amp_core import Workload
from amp_core.seeding import stream_seed
from amp_core.workload import Split

STEPS = 12
LOW = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16, "bf16-true": torch.bfloat16, "16-true": torch.float16}


class Images(Workload):
    """A small convolutional regression on images, with two convolutions that can be checkpointed."""

    def model(self) -> nn.Module:
        body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Dropout(0.1), nn.Conv2d(8, 8, 3, padding=1))
        return nn.Sequential(body, nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))

    def batches(self, split: Split, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(seed if split == "train" else 0)
        for _ in range(5):
            x = torch.randn(4, 3, 6, 6, generator=generator)
            yield x, x.mean(dim=(2, 3)).repeat(1, 2)[:, :4].tanh()


class TwoOptimizers(DropoutNet):
    """Weight matrices by SGD with momentum, everything else by AdamW in two groups."""

    def optimizers(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        return two_optimizers(model)


class Scheduled(DropoutNet):
    """AdamW under a one-cycle schedule, which raises when it is stepped too often."""

    def schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=steps)


def two_optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for name, p in model.named_parameters() if p.ndim == 1 and name.endswith("bias")]
    scales = [p for name, p in model.named_parameters() if p.ndim == 1 and not name.endswith("bias")]
    groups = [{"params": biases, "weight_decay": 0.0}, {"params": scales, "lr": 1e-3}]
    return [torch.optim.SGD(matrices, lr=0.05, momentum=0.9), torch.optim.AdamW(groups, lr=1e-2)]


def data_of(workload: Workload, seed: int) -> Iterator[Any]:
    epoch = 0
    while True:
        yield from workload.batches("train", stream_seed(seed, "data", epoch))
        epoch += 1


def plain_trace(
    workload: Workload,
    seed: int,
    *,
    precision: str = "32-true",
    scaler: torch.amp.GradScaler | None = None,
    accumulate: int = 1,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    ema_decay: float | None = None,
    channels_last: bool = False,
    checkpointed: bool = False,
    compiled: bool = False,
    optimizers: Any = None,
    schedule: Any = None,
) -> tuple[list[float], float]:
    """The loss of every step, and the mean evaluation loss after the last."""
    torch.manual_seed(seed)
    model = workload.model()
    true_low = LOW[precision] if precision.endswith("-true") and precision in LOW else None
    if true_low is not None:
        model.to(true_low)
    if channels_last:
        model.to(memory_format=torch.channels_last)
    opts = optimizers(model) if optimizers is not None else [workload.optimizer(model.parameters())]
    schedules = [] if schedule is None else [schedule(o, STEPS) for o in opts]
    average = [p.detach().float().clone() for p in model.parameters()]
    if compiled:
        model.compile()
    torch.manual_seed(stream_seed(seed, "dropout"))
    autocast = torch.autocast("cpu", dtype=LOW[precision]) if precision.endswith("-mixed") else nullcontext()
    data, losses = data_of(workload, seed), []

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
        if true_low is not None:
            return functional.mse_loss(model(x.to(true_low)).float(), y)
        with autocast:
            if checkpointed and model.training:
                hidden = checkpoint(model[0], x, use_reentrant=False)
                return functional.mse_loss(model[1:](hidden), y)
            return functional.mse_loss(model(x), y)

    for _ in range(STEPS):
        parts = []
        for _ in range(accumulate):
            loss = loss_of(*next(data))
            share = loss / accumulate if accumulate > 1 else loss
            (scaler.scale(share) if scaler is not None else share).backward()
            parts.append(loss.detach())
        if scaler is not None and (clip_norm or clip_value):
            for optimizer in opts:
                scaler.unscale_(optimizer)
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        if clip_value:
            torch.nn.utils.clip_grad_value_(model.parameters(), clip_value)
        skipped = False
        if scaler is None:
            for optimizer in opts:
                optimizer.step()
        else:
            before = scaler.get_scale()
            for optimizer in opts:
                scaler.step(optimizer)
            scaler.update()
            skipped = scaler.get_scale() < before
        if not skipped:
            for each in schedules:
                each.step()
            if ema_decay is not None:
                for old, new in zip(average, model.parameters(), strict=True):
                    old.lerp_(new.detach().float(), 1 - ema_decay)
        for optimizer in opts:
            optimizer.zero_grad()
        losses.append((torch.stack(parts).mean() if accumulate > 1 else parts[0]).item())
    if ema_decay is not None:
        for new, old in zip(model.parameters(), average, strict=True):
            new.data = old.to(new.dtype)
    model.eval()
    with torch.no_grad():
        batches = [(x, y) for x, y in workload.batches("eval", 0)]
        total = sum(loss_of(x, y).double() * len(y) for x, y in batches)
    return losses, float(total) / sum(len(y) for _, y in batches)
