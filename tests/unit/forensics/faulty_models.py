"""Small trainings with one planted numeric fault each, and sound ones; what is right is written beside each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Optimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
FP16 = {"precision": "16-mixed", "autocast_policy": "native", "scaler": {"kind": "dynamic", "init_scale": 256.0}}
BF16 = {"precision": "bf16-mixed"}
STORED = {"precision": "32-true"}


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A training with a fault: how to run it, and the module, kinds and cause that a diagnosis should name."""

    name: str
    model: Callable[[], nn.Module]
    batches: Sequence[Any]
    loss: Callable[[nn.Module, Any], Tensor]
    recipe: dict[str, Any]
    module: str | None = None
    kinds: frozenset[str] = frozenset()
    cause: str = "data"
    optimizer: Optimizer = field(default=lambda ps: torch.optim.AdamW(ps, lr=1e-2))
    eval_batches: Sequence[Any] = ()
    accumulate: int = 1


class Net(nn.Module):
    """An encoder, the part under test, a head."""

    def __init__(
        self, part: nn.Module, features: int = 8, width: int = 16, outputs: int = 3, gain: float = 1.0
    ) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, width)
        self.part = part
        self.head = nn.Linear(width, outputs)
        with torch.no_grad():
            self.encoder.weight.mul_(gain)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.part(self.encoder(x)))
        return out


class HandSoftmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        grown = torch.exp(x)
        return grown / grown.sum(-1, keepdim=True)


class HandStandardize(nn.Module):
    """Variance as the difference of two large numbers."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.offset
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) / torch.sqrt(variance + 1e-5)


class Unit(nn.Module):
    """Divides by a norm whose squares vanish."""

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1e-4
        return x / (x * x).sum(-1, keepdim=True).sqrt()


class LogOfProduct(nn.Module):
    """The logarithm of a product of many probabilities."""

    def forward(self, x: Tensor) -> Tensor:
        p = torch.sigmoid(x).clamp(0.05, 0.95)
        joint = p[..., :1]
        for i in range(1, x.shape[-1]):
            joint = joint * p[..., i : i + 1]
        return x + 0.01 * torch.log(joint)


class RunningMean(nn.Module):
    """An average with a long memory, stored with the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.average.mul_(0.999).add_(x.mean(0).detach() * 0 + 2.0, alpha=0.001)
        return x / self.average


class PhaseCode(nn.Module):
    """Angles of large times."""

    def forward(self, x: Tensor) -> Tensor:
        time = torch.matmul(x[..., :1] * 0 + 3001.0 + x.detach()[..., :1].sign(), torch.ones(1, 1))
        return x * 0.1 + torch.cat([torch.cos(time), torch.sin(time)] * 8, -1)


class Scatter(nn.Module):
    """Adds into a buffer of a fixed type."""

    def forward(self, x: Tensor) -> Tensor:
        table = torch.zeros(x.shape)
        return table.index_add_(0, torch.arange(len(x)), x)


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.fft.rfft(x).abs().mean(-1, keepdim=True)


class Quiet(nn.Module):
    """A branch whose share of the result is tiny."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 16)
        self.down = nn.Linear(16, 16)
        self.register_buffer("share", torch.full((16,), 1e-8))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.share * self.down(torch.tanh(self.up(x)))
        return out


class Mask(nn.Module):
    """Attention with infinite masks and every query seeing itself: sound."""

    def forward(self, x: Tensor) -> Tensor:
        score = torch.matmul(x, x.transpose(-1, -2)) / math.sqrt(x.shape[-1])
        hidden = torch.ones(score.shape[-2:], dtype=torch.bool).triu(1)
        return torch.matmul(score.masked_fill(hidden, float("-inf")).softmax(-1), x)


def seeded(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torch.manual_seed(3)
        return build()

    return make


def classified(num: int, size: int = 32, spread: float = 1.0) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    batches = []
    for _ in range(num):
        y = torch.randint(0, 3, (size,), generator=generator)
        x = torch.randn(size, 8, generator=generator)
        x[torch.arange(size), y] += 2.0
        batches.append((x * spread, y))
    return batches


def measured(num: int, factor: float = 1.0) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(6)
    return [(x, x[:, :3] * factor) for x in (torch.randn(32, 8, generator=generator) for _ in range(num))]


def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    dtype = next(model.parameters()).dtype
    return functional.cross_entropy(model(batch[0].to(dtype)).float(), batch[1])


def squares(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.mse_loss(model(batch[0]).float(), batch[1])


def tiny_squares(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return 1e-7 * squares(model, batch)


PLANTED = [
    Planted(
        name="exponentials beyond fp16",
        model=seeded(lambda: Net(HandSoftmax(), gain=12.0)),
        batches=classified(12),
        loss=cross_entropy,
        recipe=FP16,
        module="part",
        kinds=frozenset({"overflow"}),
    ),
    Planted(
        name="variance by cancellation",
        model=seeded(lambda: Net(HandStandardize(60.0))),
        batches=classified(12),
        loss=cross_entropy,
        recipe=FP16,
        module="part",
        kinds=frozenset({"domain_error", "cancellation", "precision_loss", "swamping"}),
    ),
    Planted(
        name="a norm whose squares vanish",
        model=seeded(lambda: Net(Unit())),
        batches=classified(12),
        loss=cross_entropy,
        recipe=FP16,
        module="part",
        kinds=frozenset({"domain_error", "underflow"}),
    ),
    Planted(
        name="logarithm of a vanished product",
        model=seeded(lambda: Net(LogOfProduct(), gain=4.0)),
        batches=classified(12),
        loss=cross_entropy,
        recipe=FP16,
        module="part",
        kinds=frozenset({"domain_error", "underflow"}),
    ),
    Planted(
        name="a statistic stored in bfloat16",
        model=seeded(lambda: Net(RunningMean()).bfloat16()),
        batches=classified(300, size=8),
        loss=cross_entropy,
        recipe=STORED,
        module="part",
        kinds=frozenset({"swamping"}),
    ),
    Planted(
        name="large times in bfloat16",
        model=seeded(lambda: Net(PhaseCode())),
        batches=classified(30),
        loss=cross_entropy,
        recipe=BF16,
        module="part",
        kinds=frozenset({"precision_loss"}),
    ),
    Planted(
        name="types that do not meet",
        model=seeded(lambda: Net(Scatter())),
        batches=classified(6),
        loss=cross_entropy,
        recipe=BF16,
        module="part",
        kinds=frozenset({"dtype_error"}),
    ),
    Planted(
        name="a transform without a half kernel",
        model=seeded(lambda: Net(Spectrum())),
        batches=classified(6),
        loss=cross_entropy,
        recipe=FP16 | {"autocast_policy": "cuda"},
        module="part",
        kinds=frozenset({"dtype_error"}),
    ),
    Planted(
        name="a branch without gradient",
        model=seeded(lambda: Net(Quiet())),
        batches=measured(8),
        loss=squares,
        recipe=FP16 | {"scaler": {"kind": "none"}},
        optimizer=lambda ps: torch.optim.SGD(ps, lr=1e-2),
        module="part",
        kinds=frozenset({"underflow"}),
        cause="scale",
    ),
    Planted(
        name="a loss too small for fp16",
        model=seeded(lambda: Net(nn.Tanh())),
        batches=measured(8),
        loss=tiny_squares,
        recipe=FP16 | {"scaler": {"kind": "none"}},
        module="encoder",
        kinds=frozenset({"underflow"}),
        cause="scale",
    ),
    Planted(
        name="updates below half a step",
        model=seeded(lambda: Net(nn.Tanh()).bfloat16()),
        batches=classified(40),
        loss=cross_entropy,
        recipe=STORED,
        optimizer=lambda ps: torch.optim.SGD(ps, lr=1e-5),
        module="encoder",
        kinds=frozenset({"swamping"}),
    ),
]

SOUND = [
    Planted(
        name="a small classifier in fp16",
        model=seeded(lambda: Net(nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)))),
        batches=classified(40),
        loss=cross_entropy,
        recipe=FP16,
        eval_batches=classified(2),
    ),
    Planted(
        name="the same in bfloat16",
        model=seeded(lambda: Net(nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)))),
        batches=classified(40),
        loss=cross_entropy,
        recipe=BF16,
        eval_batches=classified(2),
    ),
    Planted(
        name="infinite masks",
        model=seeded(lambda: Net(Mask())),
        batches=classified(20),
        loss=cross_entropy,
        recipe=FP16,
    ),
    Planted(
        name="a scale that settles",
        model=seeded(lambda: Net(nn.Tanh())),
        batches=measured(40, factor=30.0),
        loss=squares,
        recipe={"precision": "16-mixed", "scaler": {"kind": "dynamic", "init_scale": 2.0**22}},
    ),
]
