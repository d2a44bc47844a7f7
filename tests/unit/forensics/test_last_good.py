"""Copies of good states: the newest two, each as it was, in memory that is used again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from amp_core.config import RunConfig, WorkloadRef, parse_recipe
from amp_core.forensics import last_good
from amp_core.forensics.last_good import LastGood
from amp_core.precision import precision_for
from amp_core.setup import build_step
from amp_core.torch_private.tensors import tree_leaves
from amp_core.training_data import TrainingData
from amp_core.workloads.digits_cnn import DigitsCNN


def tensors(state: dict[str, Any]) -> list[Tensor]:
    own = {name: part for name, part in state.items() if name != "data"}
    return [leaf for leaf in tree_leaves(own) if isinstance(leaf, Tensor)]


def test_the_newest_two_are_kept_and_the_oldest_ones_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(last_good.time, "monotonic", lambda: now[0])
    workload, recipe = DigitsCNN(width=4, batch_size=8), parse_recipe("32-true")
    config = RunConfig(run_id=1, attempt=1, workload=WorkloadRef(name="digits-cnn", path=""), recipe=recipe, steps=9)
    step = build_step(workload, recipe, precision_for(recipe, torch.device("cpu")), 0, config.steps)
    data, good = TrainingData(workload, 0), LastGood(config)
    weights: dict[int, Tensor] = {}
    places: dict[int, set[int]] = {}
    for number in range(5):
        if number:  # before the first step the optimizer has no state yet
            step.backward(step.take(data))
            step.update()
            step.clear()
        else:
            next(data)
        weights[number] = step.model.state_dict()["0.weight"].clone()
        now[0] += 10.0
        good.consider(number, step, data)
        places[number] = {tensor.data_ptr() for tensor in tensors(good.states[-1].state) if tensor.numel()}
        assert [state.number for state in good.states] == [number - 1, number][-min(2, number + 1) :]
        for state in good.states:
            assert torch.equal(state.state["model"]["0.weight"], weights[state.number])
            counts = [group["step"].item() for group in state.state["optimizers"][0]["state"].values()]
            assert set(counts) <= {float(state.number)}
    assert places[3] == places[1]
    assert places[4] == places[2]
    assert not places[4] & places[3]
