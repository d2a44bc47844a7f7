"""Curves minus a pinned one: against differences taken point by point."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.metrics.codec import Points
from server.metrics.difference import mean_by_step, subtract

FIGURES = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf])
CURVES = st.dictionaries(st.integers(0, 60), FIGURES, max_size=40)


def points(curve: dict[int, float]) -> Points:
    steps = sorted(curve)
    values = np.array([curve[step] for step in steps], dtype=np.float64)
    return Points(steps=np.array(steps, dtype=np.int64), values=values, times=np.arange(len(steps), dtype=np.float64))


@given(own=CURVES, pinned=st.lists(CURVES, min_size=1, max_size=3))
def test_each_point_is_less_the_mean_of_the_pinned_ones(own: dict[int, float], pinned: list[dict[int, float]]) -> None:
    expected = {}
    for step, value in own.items():
        others = [curve[step] for curve in pinned if step in curve]
        if not math.isfinite(value):
            expected[step] = value
        elif others and all(math.isfinite(other) for other in others):
            expected[step] = value - sum(others) / len(others)
    found = subtract(points(own), *mean_by_step([points(curve) for curve in pinned]))
    assert found.steps.tolist() == sorted(expected)
    np.testing.assert_allclose(found.values, [expected[step] for step in sorted(expected)], rtol=1e-12, atol=1e-300)
    times = dict(zip(sorted(own), range(len(own)), strict=True))
    assert found.times.tolist() == [times[step] for step in sorted(expected)]


def test_a_run_less_itself_is_zero_but_where_it_broke() -> None:
    run = points({1: 2.0, 2: math.nan, 3: math.inf, 4: -1.5})
    found = subtract(run, *mean_by_step([run]))
    assert found.values[[0, 3]].tolist() == [0.0, 0.0]
    assert math.isnan(found.values[1])
    assert found.values[2] == math.inf
