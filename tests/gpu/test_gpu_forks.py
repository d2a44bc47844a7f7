"""Forks on a GPU: generators and optimizer state come back to the device, and a fork goes on as its run would."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from gpu_workloads import GpuMlp, config_of
from torch import nn

from amp_core.checkpoints import Checkpoints
from amp_core.config import Fork
from amp_core.events import Checkpointed, Event, Segment
from amp_core.training import train

pytestmark = pytest.mark.gpu
AT, STEPS = 10, 24


class Dropped(GpuMlp):
    """With dropout, whose masks come from the device's generator."""

    def model(self) -> nn.Module:
        return nn.Sequential(super().model(), nn.Dropout(0.1))


def _losses(events: Iterable[Event]) -> list[float]:
    columns = [column for event in events if isinstance(event, Segment) for column in event.columns]
    parts = [np.frombuffer(column.values, "<f8") for column in columns if column.name == "train/loss"]
    return [float(value) for value in np.concatenate(parts)]


@pytest.fixture
def origin(tmp_path: Path) -> tuple[Fork, list[float]]:
    config = config_of("32-true", steps=STEPS, keep_steps=(AT,), diagnose_s=0.0)
    events = list(train(config, Dropped(), Checkpoints(tmp_path, 1, config.keep_steps)))
    path = next(Path(event.path) for event in events if isinstance(event, Checkpointed) and event.kept)
    return Fork(run=9, step=AT, name=path.name, path=str(path), seed=3, steps=STEPS), _losses(events)


def test_its_own_recipe_and_seed_go_on_as_the_run_would(origin: tuple[Fork, list[float]]) -> None:
    fork, whole = origin
    config = config_of("32-true", steps=STEPS - AT, fork=fork, diagnose_s=0.0)
    assert _losses(train(config, Dropped())) == whole[AT:]


@pytest.mark.parametrize("recipe", ["bf16-mixed", "16-mixed", "bf16-true", "16-true"])
def test_other_recipes_begin_near_it(recipe: str, origin: tuple[Fork, list[float]]) -> None:
    fork, whole = origin
    config = config_of(recipe, steps=4, fork=fork, diagnose_s=0.0)
    assert _losses(train(config, Dropped()))[0] == pytest.approx(whole[AT], rel=0.05)
