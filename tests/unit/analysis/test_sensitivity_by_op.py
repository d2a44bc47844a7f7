"""The smallest set of operations in FP32: planted at calls that fp16 cannot carry, found, proved, and trainable."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planted_workloads import Planted, config_of

from amp_core import training
from amp_core.analysis import analysis_of
from amp_core.config import Recipe, RunConfig, WorkloadRef, parse_recipe
from amp_core.errors import RecipeError
from amp_core.events import Finished, Report


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _final(recipe: str, workload: Planted) -> dict[str, Any]:
    config = config_of("sensitivity", recipe, start=4, horizon=4, by="op", speed=False)
    events = list(analysis_of("sensitivity")(config, workload))
    return [event for event in events if isinstance(event, Report)][-1].content


def test_planted_operations_are_found_and_the_recipe_trains() -> None:
    content = _final("fp16", Planted(detoured="3"))
    assert content["state"] == "found"
    assert content["by"] == "op"
    assert set(content["minimal"]) == {"mul"}, "the division stays in FP32 by itself, as its input does"
    rows = {row["module"]: row for row in content["modules"]}
    assert rows["mul"]["overflow"] > 0
    assert rows["mul"]["kind"] == "operation"
    assert {proof["module"] for proof in content["certificate"]["without"]} == {"mul"}
    recipe = parse_recipe(content["recipe"])
    assert recipe.fp32_ops == ("mul",)
    exact, low, kept = (_loss_after_training(given) for given in (parse_recipe("fp32"), parse_recipe("fp16"), recipe))
    assert abs(kept - exact) < 0.2 * abs(low - exact)


def _loss_after_training(recipe: Recipe) -> float:
    where = WorkloadRef(name="planted", path=__file__)
    config = RunConfig(run_id=1, attempt=1, workload=where, recipe=recipe, steps=30, seed=3, diagnose_s=0.0)
    events = training.train(config, Planted(detoured="3", lr=1e-2))
    return next(event for event in events if isinstance(event, Finished)).metrics["loss"]


def test_a_recipe_that_passes_needs_no_operation() -> None:
    content = _final("bf16", Planted())
    assert content["state"] == "passes"
    assert content["minimal"] == []


def test_without_autocast_there_is_nothing_to_keep_operations_from() -> None:
    with pytest.raises(RecipeError, match="by='op' with precision='bf16-true'"):
        _final("bf16-true", Planted())
