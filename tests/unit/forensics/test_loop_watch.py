"""A loop of anybody's own, under watch: each mistake is found, and its right twin is silent."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional

from amp_core.forensics.loop_watch import LoopWatch, watching
from amp_core.forensics.speed_advice import Product, advise

BIG = Product(m=4096, n=4096, k=1024)


def regression(width: int = 8) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(32, width)


def train(around_loop: bool, cache: bool = True) -> None:
    model, optimizer, x = regression()
    outer = torch.autocast("cpu", torch.bfloat16, cache_enabled=cache) if around_loop else nullcontext()
    with outer:
        for _ in range(3):
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=cache):
                loss = functional.mse_loss(model(x).float(), x[:, :1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def kinds(loop: Callable[[], None]) -> set[str]:
    with watching() as watch:
        loop()
    return {finding.kind for finding in watch.findings} - {"speed"}


def test_weights_updated_inside_the_region_that_caches_them() -> None:
    assert kinds(lambda: train(around_loop=True)) == {"api-misuse"}
    assert kinds(lambda: train(around_loop=True, cache=False)) == set()
    assert kinds(lambda: train(around_loop=False)) == set()


@pytest.mark.parametrize(
    ("context", "found"), [(torch.no_grad, {"memory"}), (torch.inference_mode, set()), (torch.enable_grad, set())]
)
def test_casts_kept_although_nothing_needs_them(context: Callable[[], torch.no_grad], found: set[str]) -> None:
    model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(6)])

    def loop() -> None:
        with torch.autocast("cpu", torch.bfloat16), context():
            model(torch.randn(2, 1024))

    assert kinds(loop) == found


@pytest.mark.parametrize(("scales", "found"), [((1024.0, 256.0), {"distributed"}), ((1024.0, 1024.0), set())])
def test_replicas_that_divide_one_gradient_by_different_scales(scales: tuple[float, float], found: set[str]) -> None:
    def loop() -> None:
        model, _, x = regression()
        replicas = [model, copy.deepcopy(model)]
        optimizers = [torch.optim.SGD(replica.parameters(), lr=0.01) for replica in replicas]
        scalers = [torch.amp.GradScaler("cpu", init_scale=scale) for scale in scales]
        for replica, scaler, part in zip(replicas, scalers, (x[:16], x[16:]), strict=True):
            with torch.autocast("cpu", torch.float16):
                loss = functional.mse_loss(replica(part).float(), part[:, :1])
            scaler.scale(loss).backward()
        for p, q in zip(*(replica.parameters() for replica in replicas), strict=True):
            assert p.grad is not None
            assert q.grad is not None
            mean = (p.grad + q.grad) / 2
            p.grad.copy_(mean)
            q.grad.copy_(mean)
        for scaler, optimizer in zip(scalers, optimizers, strict=True):
            scaler.step(optimizer)
            scaler.update()

    assert kinds(loop) == found


def test_two_models_with_scalers_of_their_own_are_no_replicas() -> None:
    def loop() -> None:
        for seed, scale in ((0, 1024.0), (1, 256.0)):
            model, optimizer, x = regression()
            scaler = torch.amp.GradScaler("cpu", init_scale=scale)
            with torch.autocast("cpu", torch.float16):
                loss = functional.mse_loss(model(x * (seed + 1)).float(), x[:, :1])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

    assert kinds(loop) == set()


def test_memory_that_grows_with_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from amp_core.forensics import loop_watch

    def after(sizes: list[int]) -> set[str]:
        given = iter(sizes)
        monkeypatch.setattr(loop_watch, "process_bytes", lambda: next(given))
        watch = LoopWatch()
        _, optimizer, _ = regression()
        for _ in sizes:
            watch.optimizer_stepped(optimizer)
        return {finding.kind for finding in watch.findings}

    assert after([100_000_000 + 3_000_000 * n for n in range(20)]) == {"memory"}
    assert after([100_000_000 + 3_000_000 * min(n, 6) for n in range(20)]) == set()  # a warm-up
    assert after([100_000_000 + 30_000_000 * (n % 2) for n in range(20)]) == set()  # up and down


def test_everything_is_itself_again_afterwards() -> None:
    before = torch.autocast.__enter__, torch.autocast.__exit__, torch.amp.GradScaler.step
    with pytest.raises(ValueError, match="mine"), watching():
        raise ValueError("mine")
    assert (torch.autocast.__enter__, torch.autocast.__exit__, torch.amp.GradScaler.step) == before


def test_large_aligned_products_can_gain_and_small_odd_ones_cannot() -> None:
    large = advise([BIG])
    assert large is not None
    assert large.expects_gain
    assert large.gains == 1.0
    small = advise([Product(m=17, n=27, k=13), Product(m=17, n=3, k=27)])
    assert small is not None
    assert not small.expects_gain
    assert "13, 17, 27" in small.sentence
    thin = advise([Product(m=1, n=1 << 16, k=1 << 10)])
    assert thin is not None
    assert not thin.expects_gain
    assert advise([]) is None


def test_the_share_that_gains_is_of_the_arithmetic() -> None:
    half = advise([BIG, Product(m=BIG.m + 1, n=BIG.n, k=BIG.k)])
    assert half is not None
    assert half.gains == pytest.approx(BIG.flops / (2 * BIG.flops + 2 * BIG.n * BIG.k))
