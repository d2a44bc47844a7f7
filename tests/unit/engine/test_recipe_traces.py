"""Every recipe and every feature of a step: losses equal a hand-written torch loop to the last bit, seeds 0 to 4."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from plain_loops import STEPS, Images, Scheduled, TwoOptimizers, plain_trace, two_optimizers
from small_workloads import DropoutNet, config_of, events_of, series_of

from amp_core import Workload
from amp_core.config import parse_recipe
from amp_core.events import Finished, StepSkipped
from amp_core.training import train

SCALER = {"init_scale": 2.0**19, "growth_interval": 4}  # far too high at first: skipped steps, and growth soon after
RECIPES: dict[str, dict[str, Any]] = {
    "32-true": {"precision": "32-true"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "16-mixed": {"precision": "16-mixed", "fp16_compute": "native", "scaler": SCALER},
    "bf16-true": {"precision": "bf16-true"},
    "16-true": {"precision": "16-true"},
}
SEEDS = range(5)


def engine(recipe: dict[str, Any], workload: Workload, seed: int) -> tuple[list[float], float, list[Any]]:
    events = list(train(config_of(recipe, steps=STEPS, seed=seed), workload))
    (finished,) = events_of(events, Finished)
    return list(series_of(events)["train/loss"].values()), finished.metrics["loss"], events


def check(name: str, seed: int, workload: Workload, feature: dict[str, Any], plain: dict[str, Any]) -> list[Any]:
    """Engine and plain loop agree; the engine's events."""
    recipe = RECIPES[name]
    scaler = torch.amp.GradScaler("cpu", **SCALER) if "scaler" in recipe else None
    expected, quality = plain_trace(type(workload)(), seed, precision=name, scaler=scaler, **plain)
    losses, final, events = engine({**recipe, **feature}, workload, seed)
    np.testing.assert_array_equal(losses, expected)  # NaN equals NaN: a recipe may fail, and then as torch fails
    np.testing.assert_array_equal(final, quality)
    return events


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RECIPES)
def test_recipe(name: str, seed: int) -> None:
    events = check(name, seed, DropoutNet(), {}, {})
    assert bool(events_of(events, StepSkipped)) == (name == "16-mixed")


FEATURES: dict[str, tuple[type[Workload], dict[str, Any], dict[str, Any]]] = {
    "accumulation": (DropoutNet, {"accumulate": 3}, {"accumulate": 3}),
    "clipping by norm": (DropoutNet, {"clip_norm": 0.05}, {"clip_norm": 0.05}),
    "clipping by value": (DropoutNet, {"clip_value": 0.003}, {"clip_value": 0.003}),
    "two optimizers, groups": (TwoOptimizers, {}, {"optimizers": two_optimizers}),
    "schedule": (Scheduled, {}, {"schedule": Scheduled().schedule}),
    "average of weights": (DropoutNet, {"ema_decay": 0.9}, {"ema_decay": 0.9}),
    "gradient checkpointing": (Images, {"gradient_checkpointing": ["0"]}, {"checkpointed": True}),
    "channels last": (Images, {"channels_last": True}, {"channels_last": True}),
    "all together": (
        Scheduled,
        {"accumulate": 2, "clip_norm": 0.05, "ema_decay": 0.8},
        {"accumulate": 2, "clip_norm": 0.05, "ema_decay": 0.8, "schedule": Scheduled().schedule},
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["32-true", "bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("feature", FEATURES)
def test_feature(feature: str, name: str, seed: int) -> None:
    kind, ours, plain = FEATURES[feature]
    check(name, seed, kind(), ours, plain)


@pytest.mark.parametrize("name", ["bf16-true", "16-true"])
@pytest.mark.parametrize("feature", [name for name in FEATURES if name != "gradient checkpointing"])
def test_feature_with_weights_stored_low(feature: str, name: str) -> None:
    kind, ours, plain = FEATURES[feature]
    check(name, 0, kind(), ours, plain)


def test_features_change_the_trace() -> None:
    """Each feature of a step does something: none of the comparisons above compares two plain runs."""
    plain = engine(RECIPES["32-true"], DropoutNet(), 0)
    for feature in ("accumulation", "clipping by norm", "clipping by value", "two optimizers, groups", "schedule"):
        kind, ours, _ = FEATURES[feature]
        assert engine({**RECIPES["32-true"], **ours}, kind(), 0)[0] != plain[0], feature
    averaged = engine({**RECIPES["32-true"], "ema_decay": 0.9}, DropoutNet(), 0)
    assert averaged[0] == plain[0], "training does not see the average"
    assert averaged[1] != plain[1], "evaluation does"


def test_a_skipped_step_moves_neither_schedule_nor_average() -> None:
    recipe = {**RECIPES["16-mixed"], "ema_decay": 0.5}
    events = list(train(config_of(recipe, steps=12), Scheduled()))
    rates = list(series_of(events)["optim/learning_rate"].values())
    skipped = [event.step for event in events_of(events, StepSkipped)]
    assert skipped
    for step in range(1, 12):
        assert (rates[step] == rates[step - 1]) == (step in skipped)


def test_samples_count_every_batch_of_a_step() -> None:
    events = engine({"precision": "32-true", "accumulate": 3}, DropoutNet(), 0)[2]
    assert events[-1].samples == 3 * 16 * STEPS


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # of torch's own imports
def test_compiled_training_is_compiled_torch() -> None:
    check("32-true", 0, DropoutNet(), {"compile": True}, {"compiled": True})


def test_probes_of_low_weights_use_an_exact_copy() -> None:
    series = series_of(train(config_of("16-true", numerics_every=5), DropoutNet()))
    assert all(0.0 <= value < 0.5 for value in series["grad/underflow_fraction"].values())


def test_modules_kept_in_fp32_inside_low_weights() -> None:
    recipe = parse_recipe({"precision": "bf16-true", "fp32_modules": ["3"]})
    events = list(train(config_of("32-true", steps=5), DropoutNet()))
    kept = list(train(config_of({"precision": "bf16-true", "fp32_modules": ["3"]}, steps=5), DropoutNet()))
    low = list(train(config_of("bf16-true", steps=5), DropoutNet()))
    assert recipe.fp32_modules == ("3",)
    traces = [list(series_of(each)["train/loss"].values()) for each in (events, kept, low)]
    assert traces[1] != traces[2]
    assert traces[1] == pytest.approx(traces[0], rel=0.05)
