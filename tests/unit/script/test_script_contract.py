"""The contract of script mode: every wrong order of a step is told before a wrong gradient is used."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scripts_at_hand import NATIVE_FP16, engine_of
from torch import Tensor, nn
from torch.nn import functional

from amp_core.errors import ContractError, RecipeError
from amp_core.events import Failed, Finished, SkipsRepeat, StepSkipped
from amp_core.precision.autocast import Fp16Mixed
from amp_core.script.engine import Engine

Body = Callable[[Engine, nn.Module, torch.optim.Optimizer], Any]


def parts() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of(model: nn.Module, factor: float = 1.0) -> Tensor:
    x = torch.arange(12.0).reshape(3, 4) / 12
    return functional.mse_loss(model(x), x[:, :1]) * factor


def good_step(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        optimizer.zero_grad()
        s.backward(loss_of(model))
        optimizer.step()


def unscale_twice(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        s.backward(loss_of(model))
        s.unscale()
        s.unscale()


def clip_before_unscale(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        s.backward(loss_of(model))
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def step_outside(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()


def backward_inside_autocast(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s, torch.autocast("cpu", dtype=torch.bfloat16):
        s.backward(loss_of(model))


def step_inside_autocast(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), amp.step():
        pass


def plain_backward(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step():
        loss_of(model).backward()
        optimizer.step()


def backward_twice(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        loss = loss_of(model)
        s.backward(loss, retain_graph=True)
        s.backward(loss)


def backward_after_unscale(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        s.backward(loss_of(model))
        s.unscale()
        s.backward(loss_of(model, 2.0))


def step_twice(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        s.backward(loss_of(model))
        optimizer.step()
        optimizer.step()


def no_zero_grad(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(2):
        with amp.step() as s:
            s.backward(loss_of(model))
            optimizer.step()


def a_closure(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step():
        optimizer.step(lambda: 0.0)


def nested(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step(), amp.step():
        pass


def vector_loss(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        s.backward(model(torch.ones(3, 4)))


def detached_loss(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        s.backward(loss_of(model).detach())


def never_steps(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with amp.step() as s:
        s.backward(loss_of(model))
    amp.finish()


def prepares_twice(amp: Engine, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    amp.prepare(model, optimizer)


FAULTS: dict[str, tuple[Body, str]] = {
    "unscale twice": (unscale_twice, "came twice in one step: its gradients would be divided"),
    "clip before unscale": (clip_before_unscale, "call s.unscale() before"),
    "step without backward": (step_outside, "without gradients"),
    "backward inside autocast": (backward_inside_autocast, "inside a torch.autocast of your own"),
    "step inside autocast": (step_inside_autocast, "inside a torch.autocast of your own"),
    "loss.backward()": (plain_backward, "call s.backward(loss) instead of loss.backward()"),
    "backward twice": (backward_twice, "came twice for the same loss"),
    "backward after unscale": (backward_after_unscale, "unscale after the last backward"),
    "step twice": (step_twice, "came twice in one step: its gradients were unscaled and used"),
    "no zero_grad": (no_zero_grad, "call zero_grad() once a step"),
    "closure": (a_closure, "optimizer.step(closure)"),
    "nested": (nested, "close the first block"),
    "vector loss": (vector_loss, "give one scalar tensor"),
    "detached loss": (detached_loss, "look for a detach()"),
    "missing update": (never_steps, "no optimizer stepped"),
    "prepare twice": (prepares_twice, "came twice: name all"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_order_is_told(fault: str) -> None:
    body, message = FAULTS[fault]
    with engine_of(NATIVE_FP16) as (amp, _):
        model, optimizer = amp.prepare(*parts())
        with pytest.raises(ContractError) as told:
            body(amp, model, optimizer)
        assert message in str(told.value)
    assert not torch.is_autocast_enabled("cpu"), "an error leaves autocast as it was"


def test_what_is_told_at_the_end_is_an_event_too() -> None:
    with engine_of(NATIVE_FP16) as (amp, collected):
        model, optimizer = amp.prepare(*parts())
        with pytest.raises(ContractError):
            never_steps(amp, model, optimizer)
        assert [failed.kind for failed in collected.all(Failed)] == ["contract"]
        assert not collected.all(Finished)


@pytest.mark.parametrize("recipe", ["32-true", "bf16-mixed", "16-mixed"])
def test_a_right_order_is_not_disturbed(recipe: str) -> None:
    with engine_of(recipe) as (amp, collected):
        model, optimizer = amp.prepare(*parts())
        for set_to_none in (True, False):
            good_step(amp, model, optimizer)
            optimizer.zero_grad(set_to_none=set_to_none)
        with amp.step() as s:  # clipping after unscaling, and the step after the block
            s.backward(loss_of(model))
            s.unscale()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        amp.finish()
        assert collected.all(Finished)[0].steps == 3


def test_before_prepare_and_with_strange_things() -> None:
    model, optimizer = parts()
    with engine_of("32-true") as (amp, _):
        with pytest.raises(ContractError, match="comes first"), amp.step():
            pass
        with pytest.raises(ContractError, match="got str"):
            amp.prepare(model, optimizer, "schedule")
    with engine_of("32-true") as (amp, _), pytest.raises(ContractError, match="needs a model and an optimizer"):
        amp.prepare(model)
    with engine_of("32-true") as (amp, _), pytest.raises(ContractError, match="keeps its weights in FP32"):
        amp.prepare(model.half(), optimizer)
    with (
        engine_of({"precision": "32-true", "accumulate": 2}) as (amp, _),
        pytest.raises(RecipeError, match="your loop"),
    ):
        amp.prepare(*parts())


def test_where_autocast_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, bool]] = []

    def note(what: str) -> None:
        seen.append((what, torch.is_autocast_enabled("cpu")))

    class Watched(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            note("step")
            return super().step(closure)

    model, _ = parts()
    optimizer = Watched(model.parameters(), lr=0.1)
    with engine_of("bf16-mixed") as (amp, _):
        amp.prepare(model, optimizer)
        with amp.step() as s:
            note("begin")
            loss = loss_of(model)
            loss.register_hook(lambda _: note("backward"))
            s.backward(loss)
            note("after backward")
            model[0](torch.ones(1, 4))
            note("forward again")
            optimizer.step()
            note("after step")
        note("outside")
        assert model(torch.ones(1, 4)).dtype is torch.float32, "evaluation outside of a step gives FP32 back"
    assert seen == [
        ("begin", True), ("backward", False), ("after backward", False), ("forward again", True), ("step", False),
        ("after step", False), ("outside", False),
    ]  # fmt: skip


def test_a_forward_after_the_optimizers_step_sees_the_new_weights() -> None:
    model, optimizer = parts()
    with engine_of("bf16-mixed") as (amp, _):
        amp.prepare(model, optimizer)
        with amp.step() as s:
            s.backward(loss_of(model, 50.0))
            optimizer.step()
            again = loss_of(model)
        assert not torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            fresh = functional.mse_loss(copy.deepcopy(model)(torch.arange(12.0).reshape(3, 4) / 12).float(),
                                        (torch.arange(12.0).reshape(3, 4) / 12)[:, :1])  # fmt: skip
        assert abs(again.item() - fresh.item()) < 1e-3


def test_skipped_steps_hold_the_schedule_and_are_events() -> None:
    model, optimizer = parts()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    before = set(schedule.state_dict())
    with engine_of(NATIVE_FP16) as (amp, collected):
        amp.prepare(model, optimizer, schedule)
        assert set(schedule.state_dict()) == before
        for index in range(6):
            with amp.step() as s:
                optimizer.zero_grad()
                s.backward(loss_of(model, float("inf") if index in (1, 2) else 1.0))
                optimizer.step()
                schedule.step()
        amp.finish()
        assert [skip.step for skip in collected.all(StepSkipped)] == [2, 3]
        assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**4
        assert collected.all(Finished)[0].skipped_steps == 2


def test_skips_without_end_stop_the_run() -> None:
    model, optimizer = parts()
    recipe = {"precision": "16-mixed", "fp16_compute": "native", "scaler": {"stop_after_skips": 5}}
    with engine_of(recipe) as (amp, collected):
        amp.prepare(model, optimizer)
        taken = 0
        for _ in amp.batches([torch.ones(1)] * 100):
            taken += 1
            with amp.step() as s:
                optimizer.zero_grad()
                s.backward(loss_of(model, float("inf")))
                optimizer.step()
        amp.finish()
        assert taken == 25
        assert len(collected.all(SkipsRepeat)) == 1
        assert "skipped" in collected.all(Finished)[0].stopped or taken == collected.all(Finished)[0].steps


def test_fp32_modules_of_one_of_two_models() -> None:
    first, first_optimizer = parts()
    second = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    second_optimizer = torch.optim.SGD(second.parameters(), lr=0.1)
    with engine_of({**NATIVE_FP16, "fp32_modules": ["2"]}) as (amp, _):
        amp.prepare(first, second, first_optimizer, second_optimizer)
        assert isinstance(amp.loop.prepared.precision, Fp16Mixed)
        kept: list[torch.dtype] = []
        first[2].register_forward_hook(lambda _m, _i, out: kept.append(out.dtype))
        with amp.step():
            first(torch.ones(1, 4))
        assert kept == [torch.float32]
    with (
        engine_of({**NATIVE_FP16, "fp32_modules": ["nothing"]}) as (amp, _),
        pytest.raises(RecipeError, match="matches no"),
    ):
        amp.prepare(first, second, first_optimizer, second_optimizer)
