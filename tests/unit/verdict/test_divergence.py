"""Divergence: healthy curves are left alone in simulations, planted ones are dated, and few seeds say nothing."""

from __future__ import annotations

import numpy as np
import pytest

from amp_core.config import parse_recipe
from amp_core.verdict.divergence import NUM_BINS, divergence_of, onset_bin, smoothed
from amp_core.verdict.evidence import ExperimentEvidence, Primary, RunEvidence
from amp_core.verdict.statistics import Floats


def _curves(rng: np.random.Generator, count: int, correlation: float, noise: float) -> Floats:
    """Falling losses with an offset per seed and noise that remembers itself, `(count, NUM_BINS)`."""
    trend = 2.0 * np.exp(-np.linspace(0, 3, NUM_BINS)) + 0.2
    walk = np.zeros((count, NUM_BINS))
    for place in range(1, NUM_BINS):
        walk[:, place] = correlation * walk[:, place - 1] + rng.standard_normal(count)
    offset = 0.5 * rng.standard_normal((count, 1))
    scale = np.sqrt(1 - correlation**2)
    return np.asarray(trend * np.exp(noise * (scale * walk + offset)))


@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.99])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_healthy_curves_raise_few_alarms(seeds: int, correlation: float) -> None:
    rng = np.random.default_rng([seeds, int(100 * correlation)])
    alarms = 0
    for _ in range(400):
        curves = _curves(rng, seeds + 1, correlation, 0.05)
        alarms += onset_bin(curves[-1], curves[:-1]) is not None
    assert alarms <= 20, "one-sided 5 % at most"


@pytest.mark.parametrize("seeds", [5, 10])
def test_a_planted_divergence_is_found_and_dated(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    found = []
    for _ in range(200):
        curves = _curves(rng, seeds + 1, 0.9, 0.05)
        curves[-1, 20:] *= np.exp(0.5 * np.arange(1, NUM_BINS - 19))
        found.append(onset_bin(curves[-1], curves[:-1]))
    dated = [place for place in found if place is not None]
    assert len(dated) == len(found)
    assert np.mean([20 <= place <= 28 for place in dated]) > 0.9
    assert 20 <= np.median(dated) <= 23


def test_a_spike_that_passes_is_no_divergence() -> None:
    curves = _curves(np.random.default_rng(1), 6, 0.9, 0.05)
    curves[-1, 10:12] *= 100
    assert onset_bin(curves[-1], curves[:-1]) is None
    curves[-1, 38:] = np.inf
    assert onset_bin(curves[-1], curves[:-1]) == 38, "what lasts to the newest point counts"


def test_curves_that_fall_below_are_no_divergence_and_negative_losses_work() -> None:
    curves = _curves(np.random.default_rng(2), 6, 0.5, 0.05)
    curves[-1] *= 0.01
    assert onset_bin(curves[-1], curves[:-1]) is None
    shifted = _curves(np.random.default_rng(3), 6, 0.5, 0.05) - 5.0
    assert onset_bin(shifted[-1], shifted[:-1]) is None
    shifted[-1, 15:] += 50.0
    assert onset_bin(shifted[-1], shifted[:-1]) == 15


def test_smoothing_takes_the_median_of_each_fortieth() -> None:
    steps = list(range(1, 121))
    curve = smoothed(steps, [float(step) for step in steps], 120)
    assert curve.tolist() == [3.0 * place + 2 for place in range(40)]
    assert np.isinf(smoothed([1, 2], [1.0, float("nan")], 40)[1])
    assert np.isnan(smoothed([1], [1.0], 40)[1:]).all()


def _evidence(losses: dict[str, list[list[float]]]) -> ExperimentEvidence:
    recipes = {name: parse_recipe(name) for name in ("fp32", "bf16")}
    steps = tuple(range(1, 401))
    runs = [
        RunEvidence(
            run_id=1, seed=seed, recipe=recipes[name].name, state="running", losses=(steps, tuple(curve))
        )
        for name, curves in losses.items()
        for seed, curve in enumerate(curves)
    ]  # fmt: skip
    return ExperimentEvidence(
        experiment_id=1,
        workload="w",
        primary=Primary(metric="loss", higher_is_better=False, margin=0.01, relative=True),
        baseline=recipes["fp32"],
        candidates=(recipes["bf16"],),
        seeds=(0, 1, 2),
        steps=400,
        runs=tuple(runs),
    )


def test_an_experiment_says_from_which_step() -> None:
    rng = np.random.default_rng(4)
    healthy = [(2 - np.arange(400) / 400 + 0.01 * rng.standard_normal(400)).tolist() for _ in range(5)]
    ill = [*healthy[3][:200], *[10.0] * 200]
    found = divergence_of(_evidence({"fp32": healthy[:3], "bf16": [ill, healthy[4]]}), "bf16-mixed")
    assert found is not None
    assert found.onsets == {"0": 201, "1": None}
    assert found.step == 201
    assert found.sentence.startswith("Diverges from step 201 in 1 of 2 seeds")
    assert divergence_of(_evidence({"fp32": healthy[:2], "bf16": [ill]}), "bf16-mixed") is None
