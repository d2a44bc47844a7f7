"""Changes of level: planted ones are found where they are, and noise gives none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.trends.change_points import MIN_POINTS, changes_of


def noise(seed: int, num: int, sd: float = 1.0) -> np.ndarray:
    return 100 + np.random.default_rng(seed).normal(0, sd, num)


@pytest.mark.parametrize("num", [6, 8, 12, 20, 50])
def test_noise_alone_seldom_gives_a_change(num: int) -> None:
    """Fewer than five of a hundred series; the allowance is three standard deviations of the count."""
    trials = 300
    alarms = sum(bool(changes_of(noise(seed, num, 10).tolist())) for seed in range(trials))
    assert alarms <= trials * 0.05 + 3 * (trials * 0.05 * 0.95) ** 0.5


@pytest.mark.parametrize(("num", "at", "shift"), [(20, 10, 6.0), (20, 18, 8.0), (12, 6, 8.0), (60, 45, 5.0)])
def test_a_planted_shift_is_found_where_it_is(num: int, at: int, shift: float) -> None:
    found = 0
    for seed in range(50):
        values = noise(seed, num)
        values[at:] -= shift
        found += any(
            abs(change.index - at) <= 1 and change.after < change.before for change in changes_of(values.tolist())
        )
    assert found >= 45


def test_two_shifts_and_their_levels() -> None:
    values = np.concatenate([np.full(10, 900.0), np.full(10, 700.0), np.full(10, 1000.0)]) + noise(3, 30) - 100
    first, second = changes_of(values.tolist())
    assert (first.index, second.index) == (10, 20)
    assert first.before == pytest.approx(900, abs=2)
    assert first.after == second.before == pytest.approx(700, abs=2)
    assert second.after == pytest.approx(1000, abs=2)


@pytest.mark.parametrize("place", [0, 1, 15, 28, 29])
def test_one_outlier_is_no_level(place: int) -> None:
    steady = [seed for seed in range(20) if not changes_of(noise(seed, 30).tolist())]
    assert len(steady) >= 15
    alarms = 0
    for seed in steady:
        values = noise(seed, 30)
        values[place] += 30
        alarms += bool(changes_of(values.tolist()))
    assert alarms <= 1, "no more than noise gives by itself"


def test_steady_series_and_trifles_have_no_change() -> None:
    assert changes_of([5.0] * 20) == []
    assert changes_of([1000.0] * 10 + [1001.0] * 10) == [], "a tenth of a percent is no news"
    assert [change.index for change in changes_of([1000.0] * 10 + [900.0] * 10)] == [10]
    assert changes_of([1.0, 2.0] * (MIN_POINTS // 2 - 1)) == []


@given(st.lists(st.floats(1, 1e6), min_size=MIN_POINTS, max_size=40), st.sampled_from([0.125, 8.0, 4096.0]))
def test_the_unit_makes_no_difference(values: list[float], unit: float) -> None:
    assert [c.index for c in changes_of(values)] == [c.index for c in changes_of([value * unit for value in values])]
