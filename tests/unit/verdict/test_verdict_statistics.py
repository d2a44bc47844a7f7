"""The statistics against SciPy as oracle, and by simulation against the rates they promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from amp_core.verdict import statistics

SIMULATIONS = 60_000


def pairs(rng: np.random.Generator, count: int, *, loss: float, correlation: float = 0.0) -> np.ndarray:
    """Harms `(SIMULATIONS, count)` of pairs whose runs have sd 1 each and the given correlation."""
    spread = np.sqrt(2.0 * (1.0 - correlation))
    return loss + spread * rng.standard_normal((SIMULATIONS, count))


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12), st.integers(0, 2**31))
def test_the_interval_is_that_of_the_paired_t_test(baseline: list[float], seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours = np.array(baseline)
    theirs = ours + rng.normal(0.3, 1.0, ours.size)
    interval = statistics.paired_interval(theirs - ours)
    oracle = stats.ttest_rel(theirs, ours).confidence_interval(0.90)
    assert interval.lower == pytest.approx(oracle.low, rel=1e-9, abs=1e-9)
    assert interval.upper == pytest.approx(oracle.high, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("margin", [0.2, 0.5, 1.0])
def test_both_one_sided_tests_agree_with_scipy(margin: float) -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        harms = rng.normal(rng.uniform(-1.0, 1.0), rng.uniform(0.05, 1.0), rng.integers(3, 9))
        interval = statistics.paired_interval(harms)
        upper = stats.ttest_1samp(harms, margin, alternative="less").pvalue
        lower = stats.ttest_1samp(harms, -margin, alternative="greater").pvalue
        ours = float(statistics.noninferiority_p(interval, margin, harms.size))
        assert ours == pytest.approx(upper, rel=1e-8, abs=1e-12)
        assert statistics.is_noninferior(interval, margin) == (upper < 0.05)
        assert statistics.is_equivalent(interval, margin) == (max(upper, lower) < 0.05)  # TOST


@pytest.mark.parametrize("count", [3, 5, 10])
@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_a_recipe_exactly_at_the_margin_is_called_safe_five_times_in_a_hundred(count: int, correlation: float) -> None:
    rng = np.random.default_rng(count)
    interval = statistics.paired_interval(pairs(rng, count, loss=1.0, correlation=correlation))
    assert statistics.is_noninferior(interval, 1.0).mean() == pytest.approx(0.05, abs=0.004)


@pytest.mark.parametrize(
    ("count", "correlation", "margin", "equivalent", "noninferior"),
    [
        (5, 0.0, 1.0, 0.08, 0.37),
        (5, 0.0, 1.5, 0.35, 0.62),
        (5, 0.0, 2.0, 0.67, 0.83),
        (10, 0.0, 1.0, 0.35, 0.66),
        (10, 0.0, 1.5, 0.85, 0.93),
        (10, 0.0, 2.0, 0.99, 0.99),
        (5, 0.9, 1.0, 0.98, 0.99),
    ],
)
def test_power_at_zero_true_loss(
    count: int, correlation: float, margin: float, equivalent: float, noninferior: float
) -> None:
    """The designed table is that of two-sided equivalence, which the A/A control uses; SAFE asks one side only."""
    rng = np.random.default_rng(17)
    interval = statistics.paired_interval(pairs(rng, count, loss=0.0, correlation=correlation))
    assert statistics.is_equivalent(interval, margin).mean() == pytest.approx(equivalent, abs=0.012)
    simulated = statistics.is_noninferior(interval, margin).mean()
    assert simulated == pytest.approx(noninferior, abs=0.012)
    sd = float(np.sqrt(2.0 * (1.0 - correlation)))
    assert statistics.noninferiority_power(count, margin, sd) == pytest.approx(simulated, abs=0.01)


def test_holm_keeps_the_chance_of_any_false_safe_at_five_percent() -> None:
    """Three recipes that all lose exactly the margin: without Holm one of them looks safe far too often."""
    rng = np.random.default_rng(5)
    p_values = []
    shared = rng.standard_normal((8000, 5))  # the baseline's part of every pair
    for _ in range(3):
        harms = 1.0 + rng.standard_normal((8000, 5)) - shared
        p_values.append(statistics.noninferiority_p(statistics.paired_interval(harms), 1.0, 5))
    together = np.stack(p_values, axis=1)
    naive = (together < 0.05).any(axis=1).mean()
    holm = np.mean([any(passes for _, passes in statistics.holm_thresholds(list(row))) for row in together])
    assert naive > 0.09
    assert holm <= 0.055


def test_holm_steps_down_and_stops() -> None:
    outcome = statistics.holm_thresholds([0.04, 0.001, 0.03])
    assert outcome == [(0.05, False), (pytest.approx(0.05 / 3), True), (0.025, False)]
    assert statistics.holm_thresholds([0.04, 0.001, 0.02]) == [
        (0.05, True),
        (pytest.approx(0.05 / 3), True),
        (0.025, True),
    ]
    assert statistics.holm_thresholds([0.049]) == [(0.05, True)]
    assert statistics.holm_thresholds([]) == []


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6))
def test_holm_agrees_with_adjusted_p_values(p_values: list[float]) -> None:
    order = np.argsort(p_values, kind="stable")
    adjusted = np.maximum.accumulate(np.array(p_values)[order] * np.arange(len(p_values), 0, -1))
    expected = {int(index): bool(value < 0.05) for index, value in zip(order, adjusted, strict=True)}
    outcome = statistics.holm_thresholds(p_values)
    assert {index: passes for index, (_, passes) in enumerate(outcome)} == pytest.approx(expected)


def test_equal_differences_get_the_width_of_the_metric_resolution() -> None:
    interval = statistics.paired_interval(np.zeros(5), floor=1 / 360)
    assert (float(interval.lower), float(interval.upper)) == pytest.approx((-1 / 360, 1 / 360))
    assert bool(interval.floored)
    assert float(statistics.noninferiority_p(interval, 0.005, 5)) < 0.05
    assert float(statistics.noninferiority_p(interval, 1 / 400, 5)) > 0.05
    without = statistics.paired_interval(np.zeros(5))
    assert float(statistics.noninferiority_p(without, 0.1, 5)) == 0.0


@settings(max_examples=60)
@given(st.floats(0.05, 3.0), st.floats(0.05, 3.0))
def test_the_number_of_pairs_is_the_first_with_power(distance: float, sd: float) -> None:
    needed = statistics.pairs_needed(distance, sd)
    if needed is None:
        assert statistics.noninferiority_power(statistics.MAX_SEEDS, distance, sd) < 0.8
        return
    assert statistics.noninferiority_power(needed, distance, sd) >= 0.8
    assert needed == 3 or statistics.noninferiority_power(needed - 1, distance, sd) < 0.8


def test_the_bootstrap_is_deterministic_and_covers_the_true_ratio() -> None:
    rng = np.random.default_rng(11)
    inside = 0
    for trial in range(200):
        baseline = 1000.0 * np.exp(rng.normal(0.0, 0.05, 12))
        candidate = 1800.0 * np.exp(rng.normal(0.0, 0.05, 12))
        ratio, low, high = statistics.bootstrap_ratio(baseline, candidate, seed=trial, draws=600)
        assert (ratio, low, high) == statistics.bootstrap_ratio(baseline, candidate, seed=trial, draws=600)
        assert low <= ratio <= high
        inside += low <= 1.8 <= high
    assert inside / 200 > 0.88
