"""A script whose data come through ``amp.batches`` goes on from a checkpoint as if nothing had happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts_at_hand import NATIVE_FP16, Collected, engine_of
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from amp_core.errors import NotResumable
from amp_core.events import Checkpointed, Evaluated, Finished, Started
from amp_core.script.engine import Engine

RECIPES: list[Any] = ["32-true", "bf16-mixed", {**NATIVE_FP16, "ema_decay": 0.9, "scaler": {"init_scale": 2.0**17}}]


class Killed(Exception):
    pass


def train(amp: Engine, kill_at: int = 0, step_inside: bool = True, salt: float = 0.0) -> None:
    """Three passes over shuffled data with dropout, a schedule and an evaluation after each."""
    torch.manual_seed(5)
    x = torch.randn(40, 6) + salt
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Dropout(0.3), nn.Linear(12, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.97**step)
    model, optimizer, schedule = amp.prepare(model, optimizer, schedule)
    loader = DataLoader(TensorDataset(x), batch_size=8, shuffle=True)
    for _ in range(3):
        for (batch,) in amp.batches(loader):
            with amp.step() as s:
                optimizer.zero_grad()
                s.backward(functional.mse_loss(model(batch), batch[:, :2].tanh()))
                if step_inside:
                    optimizer.step()
                    schedule.step()
            if not step_inside:
                optimizer.step()
                schedule.step()
            if kill_at and amp.loop.record.number >= kill_at:
                raise Killed
        with amp.evaluating():
            amp_metric = functional.mse_loss(model(x), x[:, :2].tanh())
        amp.evaluated({"loss": float(amp_metric)}, samples=40)
    amp.finish()


def losses(collected: Collected) -> list[float]:
    return collected.series()["train/loss"]


@pytest.mark.parametrize("recipe", RECIPES, ids=["fp32", "bf16", "fp16-ema"])
@pytest.mark.parametrize("step_inside", [True, False])
def test_a_killed_run_goes_on_bitwise(recipe: Any, step_inside: bool, tmp_path: Path) -> None:
    with engine_of(recipe) as (amp, undisturbed):
        train(amp, step_inside=step_inside)
    fields = {"checkpoint_dir": str(tmp_path), "checkpoint_every_steps": 3}
    with engine_of(recipe, **fields) as (amp, first), pytest.raises(Killed):
        train(amp, kill_at=9, step_inside=step_inside)
    newest = first.all(Checkpointed)[-1]
    assert newest.step in (6, 9)
    with engine_of(recipe, resume_from=(newest.path,)) as (amp, second):
        train(amp, step_inside=step_inside)
        assert amp.resumed_step == newest.step
    assert second.all(Started)[0].resumed_step == newest.step
    assert losses(second) == losses(undisturbed)[newest.step :]
    assert second.all(Finished)[0].metrics == undisturbed.all(Finished)[0].metrics
    assert second.all(Finished)[0].samples == undisturbed.all(Finished)[0].samples
    assert [e.step for e in second.all(Evaluated)] == [10, 15, 15], "the first pass is not evaluated again"


def test_other_data_are_refused(tmp_path: Path) -> None:
    fields = {"checkpoint_dir": str(tmp_path), "checkpoint_every_steps": 3}
    with engine_of("32-true", **fields) as (amp, first), pytest.raises(Killed):
        train(amp, kill_at=5)
    path = first.all(Checkpointed)[-1].path
    with engine_of("32-true", resume_from=(path,)) as (amp, _), pytest.raises(NotResumable, match="cannot be taken up"):
        train(amp, salt=1.0)


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / f"step-{3:010d}-{'0' * 32}.pt"
    path.write_bytes(b"nothing")
    with engine_of("32-true", resume_from=(str(path),)) as (amp, collected):
        train(amp)
    assert "damaged" in collected.all(Started)[0].not_resumed
    assert collected.all(Finished)[0].steps == 15


def test_batches_end_with_the_last_step() -> None:
    with engine_of("32-true", steps=7) as (amp, collected):
        train(amp)
    assert collected.all(Finished)[0].steps == 7


def test_without_batches_there_are_no_checkpoints(tmp_path: Path) -> None:
    def data() -> Iterator[Tensor]:
        yield from torch.randn(6, 4, 6)

    with engine_of("32-true", checkpoint_dir=str(tmp_path), checkpoint_every_steps=1) as (amp, collected):
        model = nn.Linear(6, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        amp.prepare(model, optimizer)
        for batch in data():
            with amp.step() as s:
                optimizer.zero_grad()
                s.backward(model(batch).square().mean())
                optimizer.step()
        amp.finish()
    assert not collected.all(Checkpointed)
    assert not list(tmp_path.iterdir())
