"""Running scripts in this process with their events collected, and the loops by hand to compare them with."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Event, Segment
from amp_core.script import engine
from amp_core.script.engine import Engine
from amp_core.script.start import Start

EXAMPLES = Path(__file__).parents[3] / "examples" / "scripts"
NATIVE_FP16 = {"precision": "16-mixed", "fp16_compute": "native"}
E = TypeVar("E", bound=Event)


@dataclass
class Collected:
    """A sink that keeps everything."""

    events: list[Event] = field(default_factory=list)

    def send(self, event: Event) -> None:
        self.events.append(event)

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def series(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for column in (column for segment in self.all(Segment) for column in segment.columns):
            found.setdefault(column.name, []).extend(np.frombuffer(column.values, "<f8").tolist())
        return found


def config_of(recipe: Any, **fields: Any) -> RunConfig:
    given = {"steps": 0, "device": "cpu", "numerics_every": 5, **fields}
    workload = WorkloadRef(name="script", path=__file__)
    return RunConfig(run_id=1, attempt=1, workload=workload, recipe=parse_recipe(recipe), **given)


@contextmanager
def engine_of(recipe: Any, **fields: Any) -> Iterator[tuple[Engine, Collected]]:
    """An engine in this process; what it changed in the process is undone."""
    collected = Collected()
    amp = Engine(Start(config=config_of(recipe, **fields), sink=collected))
    try:
        yield amp, collected
    finally:
        amp._lasting.close()


def run_example(name: str, recipe: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> Collected:
    """An example as it stands, under a recipe."""
    collected = Collected()
    torch.manual_seed(seed)
    with monkeypatch.context() as patched:
        patched.setattr(engine, "begin", lambda *_: Start(config=config_of(recipe), sink=collected))
        found = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    found["amp"].finish()
    return collected


# ---- the same loops by hand, as torch documents mixed precision ----


@dataclass
class ByHand:
    autocast: Callable[[], AbstractContextManager[Any]]
    scaler: torch.amp.GradScaler
    losses: list[float] = field(default_factory=list)


def by_hand(precision: str) -> ByHand:
    low = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)
    autocast = nullcontext if low is None else (lambda: torch.autocast("cpu", dtype=low))
    return ByHand(autocast, torch.amp.GradScaler("cpu", enabled=precision == "16-mixed"))


def plain(hand: ByHand, seed: int) -> None:
    torch.manual_seed(seed)
    inputs = torch.randn(12, 16, 8, generator=torch.Generator().manual_seed(1))
    targets = inputs[:, :, :4].tanh()
    model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        with hand.autocast():
            loss = functional.mse_loss(model(x), y)
        hand.scaler.scale(loss).backward()
        hand.scaler.step(optimizer)
        hand.scaler.update()
        hand.losses.append(loss.item())


def accumulation(hand: ByHand, seed: int) -> None:
    torch.manual_seed(seed)
    inputs = torch.randn(12, 16, 8, generator=torch.Generator().manual_seed(1))
    targets = inputs[:, :, :4].tanh()
    model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    parts: list[Tensor] = []
    for index, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        with hand.autocast():
            loss = functional.mse_loss(model(x), y) / 3
        hand.scaler.scale(loss).backward()
        parts.append(loss.detach().float())
        if index % 3 == 2:
            hand.scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            hand.scaler.step(optimizer)
            hand.scaler.update()
            optimizer.zero_grad()
            hand.losses.append(torch.stack(parts).sum().item())
            parts.clear()


def gan(hand: ByHand, seed: int) -> None:
    torch.manual_seed(seed)
    source = torch.Generator().manual_seed(1)
    real = torch.randn(12, 32, 2, generator=source) * 0.5 + 1.0
    noise = torch.randn(12, 32, 4, generator=source)
    ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    judge = functional.binary_cross_entropy_with_logits
    for x, z in zip(real, noise, strict=True):
        c_optimizer.zero_grad()
        with hand.autocast():
            fake = generator(z)
            c_loss = judge(critic(x), ones) + judge(critic(fake.detach()), zeros)
        hand.scaler.scale(c_loss).backward()
        hand.scaler.step(c_optimizer)
        g_optimizer.zero_grad()
        with hand.autocast():
            g_loss = judge(critic(fake), ones)
        hand.scaler.scale(g_loss).backward()
        hand.scaler.step(g_optimizer)
        hand.scaler.update()
        hand.losses.append(torch.stack([c_loss.detach().float(), g_loss.detach().float()]).sum().item())


def gradient_penalty(hand: ByHand, seed: int) -> None:
    torch.manual_seed(seed)
    inputs = torch.randn(12, 16, 8, generator=torch.Generator().manual_seed(1))
    targets = inputs[:, :, :1].tanh()
    model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in zip(inputs, targets, strict=True):
        optimizer.zero_grad()
        x.requires_grad_()
        with hand.autocast():
            output = model(x)
            total = output.sum()
        (scaled,) = torch.autograd.grad(hand.scaler.scale(total), x, create_graph=True)
        slope = scaled * (1.0 / hand.scaler.get_scale())
        penalty = (slope.norm(dim=1) - 1.0).square().mean()
        loss = functional.mse_loss(output, y) + 0.1 * penalty
        hand.scaler.scale(loss).backward()
        hand.scaler.step(optimizer)
        hand.scaler.update()
        hand.losses.append(loss.item())


LOOPS: dict[str, Callable[[ByHand, int], None]] = {
    "plain": plain,
    "accumulation": accumulation,
    "gan": gan,
    "gradient_penalty": gradient_penalty,
}
