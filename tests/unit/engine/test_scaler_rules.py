"""The rules of the loss scale: torch's own to the last bit, the others against a plain statement of each."""

from __future__ import annotations

import inspect
import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from amp_core.config import Scaler
from amp_core.errors import RecipeError
from amp_core.scaler import LossScaler
from amp_core.torch_private import grad_scaler

CPU = torch.device("cpu")
NUM_SEQUENCES = 10_000


def update(scaler: torch.amp.GradScaler, found: bool) -> float:
    """One update after gradients in which an infinity was found or not; the scale afterwards."""
    if scaler._scale is None:
        scaler.scale(torch.ones(1))
    scaler._per_optimizer_states[0]["found_inf_per_device"] = {CPU: torch.tensor(float(found))}
    scaler.update()
    return scaler.get_scale()


def random_settings(draw: random.Random) -> dict[str, Any]:
    return {
        "init_scale": draw.choice([1.0, 3.7, 2.0**16, 2.0**-130, 2.0**120, draw.uniform(0.1, 1e6)]),
        "growth_factor": draw.choice([2.0, 1.001, 10.0, draw.uniform(1.01, 8.0)]),
        "backoff_factor": draw.choice([0.5, 0.999, 0.01, draw.uniform(0.05, 0.95)]),
        "growth_interval": draw.choice([1, 2, 3, draw.randint(1, 12), 2000]),
    }


def test_random_sequences_are_torchs_own() -> None:
    """Scale, growth tracker and skips after each update equal `torch._amp_update_scale_` called directly."""
    draw = random.Random(0)
    for _ in range(NUM_SEQUENCES):
        options, share = random_settings(draw), draw.choice([0.0, 0.1, 0.5, 0.9])
        ours = LossScaler("cpu", **options)
        scale = torch.full((), options["init_scale"], dtype=torch.float32)
        tracker = torch.zeros((), dtype=torch.int32)
        for _ in range(draw.randint(1, 16)):
            found = draw.random() < share
            after = update(ours, found)
            rule = (options["growth_factor"], options["backoff_factor"], options["growth_interval"])
            torch._amp_update_scale_(scale, tracker, torch.tensor(float(found)), *rule)
            held = grad_scaler.growth_tracker(ours)
            assert held is not None
            assert (after, held.item()) == (scale.item(), tracker.item()), options


class PlainRule:
    """Dynamic loss scaling in plain Python: PyTorch's growth and back-off, Megatron's and DeepSpeed's hysteresis."""

    def __init__(self, options: Scaler) -> None:
        self.options, self.scale = options, options.init_scale
        self.clean_steps, self.forgiven = 0, options.hysteresis

    def step(self, found: bool) -> float:
        options = self.options
        if found:
            self.clean_steps = 0
            self.forgiven -= 1
            if self.forgiven <= 0:
                self.forgiven = 0
                self.scale = max(self.scale * options.backoff_factor, options.min_scale)
            return self.scale
        if options.hysteresis_refill == "clean_step":
            self.forgiven = options.hysteresis
        self.clean_steps += 1
        if self.clean_steps == options.growth_interval:
            self.clean_steps = 0
            self.forgiven = options.hysteresis
            self.scale = min(self.scale * options.growth_factor, options.max_scale or math.inf)
        return self.scale


@settings(deadline=None, max_examples=200)
@given(
    found=st.lists(st.booleans(), min_size=1, max_size=60),
    hysteresis=st.integers(1, 4),
    refill=st.sampled_from(["growth", "clean_step"]),
    growth_interval=st.integers(1, 5),
    floor=st.sampled_from([0.0, 1.0, 100.0, 1024.0]),
    cap=st.sampled_from([None, 1024.0, 3000.0, 2.0**24]),
)
def test_other_rules_are_their_plain_statement(
    found: list[bool], hysteresis: int, refill: Any, growth_interval: int, floor: float, cap: float | None
) -> None:
    options = Scaler(
        init_scale=1024.0, growth_interval=growth_interval, hysteresis=hysteresis, hysteresis_refill=refill,
        min_scale=floor, max_scale=cap,
    )  # fmt: skip
    ours, plain = LossScaler.of(options, CPU), PlainRule(options)
    for each in found:
        assert update(ours, each) == plain.step(each)


def test_literal_scales_of_hysteresis() -> None:
    """Two overflows forgiven by Megatron's rule: the third drops, and so does every further one until growth."""
    pattern = [True, True, True, True, False, False, True, True, True]
    megatron = LossScaler("cpu", 16.0, growth_interval=2, hysteresis=3, hysteresis_refill="growth")
    assert [update(megatron, found) for found in pattern] == [16, 16, 8, 4, 4, 8, 8, 8, 4]
    deepspeed = LossScaler("cpu", 16.0, growth_interval=9, hysteresis=3, hysteresis_refill="clean_step")
    assert [update(deepspeed, found) for found in pattern] == [16, 16, 8, 4, 4, 4, 4, 4, 2]


def test_floor_and_cap_hold() -> None:
    scaler = LossScaler("cpu", 4.0, growth_interval=1, min_scale=2.0, max_scale=8.0)
    assert [update(scaler, found) for found in (True, True, True)] == [2, 2, 2]
    assert [update(scaler, found) for found in (False, False, False)] == [4, 8, 8]


def test_it_is_a_drop_in_for_grad_scaler() -> None:
    """Every public method is there with the same parameters; the constructor takes GradScaler's positionally."""
    theirs = torch.amp.GradScaler
    for name, method in inspect.getmembers(theirs, inspect.isfunction):
        if not name.startswith("_"):
            expected = list(inspect.signature(method).parameters)
            assert list(inspect.signature(getattr(LossScaler, name)).parameters) == expected, name
    own = list(inspect.signature(LossScaler).parameters)
    assert own[:6] == list(inspect.signature(theirs).parameters)
    disabled = LossScaler("cpu", enabled=False)
    assert (disabled.is_enabled(), disabled.get_scale(), disabled.state_dict()) == (False, 1.0, {})
    loss = torch.ones(1)
    assert disabled.scale(loss) is loss
    with pytest.warns(UserWarning, match="CUDA is not available") if not torch.cuda.is_available() else _nothing():
        assert LossScaler("cuda").is_enabled() == torch.cuda.is_available()


class _nothing:  # noqa: N801 - reads as a context
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_its_setters_and_getters_are_torchs() -> None:
    ours, theirs = LossScaler("cpu"), torch.amp.GradScaler("cpu")
    for scaler in (ours, theirs):
        scaler.set_growth_factor(3.0)
        scaler.set_backoff_factor(0.25)
        scaler.set_growth_interval(7)
        scaler.scale(torch.ones(1))
        scaler.update(32.0)
    assert ours.state_dict() == theirs.state_dict()
    assert (ours.get_growth_factor(), ours.get_backoff_factor(), ours.get_growth_interval()) == (3.0, 0.25, 7)
    assert update(ours, True) == update(theirs, True) == 8.0


def test_state_goes_back_and_forth() -> None:
    """torch's state loads into ours and ours into torch's; with hysteresis its counter goes along."""
    options = {"init_scale": 64.0, "growth_interval": 3}
    ours, theirs = LossScaler("cpu", **options), torch.amp.GradScaler("cpu", **options)
    for found in (False, True, False):
        update(ours, found)
    theirs.load_state_dict(ours.state_dict())
    assert theirs.state_dict() == ours.state_dict()
    back = LossScaler("cpu")
    back.load_state_dict(theirs.state_dict())
    pattern = [False, False, True, False, False, False]
    assert [update(back, f) for f in pattern] == [update(ours, f) for f in pattern]

    first = LossScaler("cpu", 64.0, hysteresis=3)
    update(first, True)
    second = LossScaler("cpu", 64.0, hysteresis=3)
    second.load_state_dict(first.state_dict())
    assert [update(second, True) for _ in range(3)] == [update(first, True) for _ in range(3)] == [64, 32, 16]


@pytest.mark.parametrize("fused", [True, False])
def test_two_optimizers_share_one_scale(fused: bool) -> None:
    """Each optimizer is skipped by its own gradients and the scale moves once, as with GradScaler."""
    weights = [[nn.Parameter(torch.ones(2)) for _ in range(2)] for _ in range(2)]
    optimizers = [[torch.optim.SGD([w], lr=0.5, fused=fused) for w in pair] for pair in weights]
    ours, theirs = LossScaler("cpu", 8.0), torch.amp.GradScaler("cpu", 8.0)
    for slopes in ((1.0, 2.0), (math.inf, 1.0), (1.0, 0.5)):
        for scaler, pair, opts in ((ours, weights[0], optimizers[0]), (theirs, weights[1], optimizers[1])):
            loss = pair[0].sum() * slopes[0] + pair[1].sum() * slopes[1]
            scaler.scale(loss).backward()
            for optimizer in opts:
                scaler.unscale_(optimizer)
        outcome = ours.finish(*optimizers[0])
        for optimizer in optimizers[1]:
            theirs.step(optimizer)
        theirs.update()
        assert (outcome.found_inf.item() > 0) == (math.inf in slopes)
        assert ours.state_dict() == theirs.state_dict()
        assert [w.tolist() for w in weights[0]] == [w.tolist() for w in weights[1]]
        for pair in optimizers:
            for optimizer in pair:
                optimizer.zero_grad()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hysteresis": 0}, "hysteresis=0 must be at least 1"),
        ({"hysteresis_refill": "never"}, "choose growth or clean_step"),
        ({"min_scale": 1e9}, "must lie between 0 and init_scale=65536"),
        ({"max_scale": 2.0}, "at least init_scale=65536"),
        ({"kind": "static", "hysteresis": 2}, "kind='dynamic' only"),
        ({"stop_after_skips": -1}, "must be 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        Scaler(**fields)
