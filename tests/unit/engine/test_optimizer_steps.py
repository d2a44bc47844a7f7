"""An optimizer's step without torch's range around it changes the same numbers, and passes over nobody who looks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from amp_core.torch_private import optimizers

KINDS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "fused AdamW": lambda given: torch.optim.AdamW(given, lr=0.1, fused=True),
    "Adam": lambda given: torch.optim.Adam(given, lr=0.1),
    "SGD": lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9),
    "Adafactor": lambda given: torch.optim.Adafactor(given, lr=0.1),
}


def weights() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    held = [nn.Parameter(torch.randn(3, 5, generator=generator)), nn.Parameter(torch.randn(5, generator=generator))]
    for weight in held:
        weight.grad = torch.randn(weight.shape, generator=generator)
    return held


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of profiler ranges as they are opened."""
    opened: list[str] = []

    class Noted(torch.autograd.profiler.record_function):
        def __enter__(self) -> Any:
            opened.append(self.name)
            return super().__enter__()

    monkeypatch.setattr(torch.autograd.profiler, "record_function", Noted)
    return opened


@pytest.mark.parametrize("kind", KINDS)
def test_steps_are_equal_to_the_last_bit(kind: str, ranges: list[str]) -> None:
    ours, plain = weights(), weights()
    first, second = KINDS[kind](ours), KINDS[kind](plain)
    for _ in range(3):
        optimizers.step(first)
    assert ranges == []
    for _ in range(3):
        second.step()
    assert len(ranges) == 3
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))
    assert all(a.grad_fn is None and a.requires_grad for a in ours)
    assert not torch.equal(ours[0], weights()[0])


@contextmanager
def own_hooks(optimizer: Optimizer, note: Callable[..., None]) -> Iterator[None]:
    optimizer.register_step_pre_hook(lambda *_: note())
    yield


@contextmanager
def own_post_hooks(optimizer: Optimizer, note: Callable[..., None]) -> Iterator[None]:
    optimizer.register_step_post_hook(lambda *_: note())
    yield


@contextmanager
def hooks_of_all(_: Optimizer, note: Callable[..., None]) -> Iterator[None]:
    handle = register_optimizer_step_pre_hook(lambda *_: note())
    yield
    handle.remove()


@contextmanager
def post_hooks_of_all(_: Optimizer, note: Callable[..., None]) -> Iterator[None]:
    handle = register_optimizer_step_post_hook(lambda *_: note())
    yield
    handle.remove()


@contextmanager
def changed_object(optimizer: Optimizer, note: Callable[..., None]) -> Iterator[None]:
    before = optimizer.step
    optimizer.step = lambda: (note(), before())[1]  # type: ignore[method-assign,assignment]
    yield


@contextmanager
def wrapped_class(optimizer: Optimizer, note: Callable[..., None]) -> Iterator[None]:
    kind: Any = type(optimizer)
    before = kind.step

    @functools.wraps(before)  # copies ``hooked`` and gives it a ``__wrapped__``, as torch's own has
    def outer(*given: Any) -> Any:
        note()
        return before(*given)

    kind.step = outer
    yield
    kind.step = before


@contextmanager
def profiler(_: Optimizer, note: Callable[..., None]) -> Iterator[None]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        yield
    for event in profile.events():
        if event.name == "Optimizer.step#SGD.step":
            note()


LOOKING = (own_hooks, own_post_hooks, hooks_of_all, post_hooks_of_all, changed_object, wrapped_class, profiler)


@pytest.mark.parametrize("looking", LOOKING)
def test_who_looks_sees_the_step(looking: Callable[..., Any]) -> None:
    seen: list[None] = []
    ours, plain = weights(), weights()
    optimizer = torch.optim.SGD(ours, lr=0.1)
    with looking(optimizer, lambda: seen.append(None)):
        optimizers.step(optimizer)
    assert len(seen) == 1
    torch.optim.SGD(plain, lr=0.1).step()
    assert torch.equal(ours[0], plain[0])


def test_a_schedule_is_not_told_that_a_step_is_missing() -> None:
    """It counts steps through the object's ``step`` and warns, here an error, where it is moved on without one."""
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizers.step(optimizer)
    schedule.step()


class Own(torch.optim.SGD):
    """With a step of its own."""

    calls = 0

    def step(self, closure: Any = None) -> None:
        self.calls += 1
        super().step(closure)


def test_a_step_of_ones_own_is_called() -> None:
    ours, plain = weights(), weights()
    optimizer = Own(ours, lr=0.1)
    optimizers.step(optimizer)
    torch.optim.SGD(plain, lr=0.1).step()
    assert optimizer.calls == 1
    assert torch.equal(ours[0], plain[0])
