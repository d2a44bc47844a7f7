"""Thinning loses no extreme and no non-finite value at any zoom, and never invents a point."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.metrics.codec import Points
from server.metrics.downsample import MIN_POINTS, downsample

values = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf]),
)
steps = st.one_of(st.integers(0, 200), st.integers(-(2**63), 2**63 - 1))


@st.composite
def series(draw: st.DrawFn) -> Points:
    """Sorted steps, dense or far apart or repeated, with any values."""
    at = sorted(draw(st.lists(draw(st.sampled_from([st.integers(0, 200), steps])), max_size=300)))
    return Points(
        steps=np.array(at, np.int64),
        values=np.array([draw(values) for _ in at]),
        times=np.arange(len(at), dtype=float),
    )


@given(series(), st.integers(MIN_POINTS, 120))
def test_bins_keep_their_ends_extremes_and_non_finite_values(points: Points, max_points: int) -> None:
    kept, width = downsample(points, max_points)
    assert len(kept) <= max_points or width is None
    if width is None:
        assert kept is points
        assert len(points) <= max_points
        return
    index = kept.times.astype(int)  # the time of each point is its place in the original
    assert np.all(np.diff(index) > 0), "kept points are points of the series, in order, each once"
    assert np.array_equal(kept.steps, points.steps[index])
    assert np.array_equal(kept.values, points.values[index], equal_nan=True)
    bins = [int(step) // width for step in points.steps]
    kept_by_bin: dict[int, list[int]] = {}
    for place in index:
        kept_by_bin.setdefault(bins[place], []).append(int(place))
    everything: dict[int, list[int]] = {}
    for place, where in enumerate(bins):
        everything.setdefault(where, []).append(place)
    assert set(kept_by_bin) == set(everything), "no bin vanishes"
    for where, places in everything.items():
        original, left = points.values[places], points.values[kept_by_bin[where]]
        assert (kept_by_bin[where][0], kept_by_bin[where][-1]) == (places[0], places[-1])
        for test in (np.isnan, np.isposinf, np.isneginf):
            assert test(original).any() == test(left).any()
        finite = original[np.isfinite(original)]
        if len(finite):
            assert left[np.isfinite(left)].min() == finite.min()
            assert left[np.isfinite(left)].max() == finite.max()


@pytest.mark.parametrize("max_points", [16, 100, 1000])
def test_a_one_step_spike_and_a_lone_nan_survive_every_zoom(max_points: int) -> None:
    size = 50_000
    noise = np.random.default_rng(1).standard_normal(size)
    noise[31_337] = 1e9
    noise[40_001] = math.nan
    noise[40_002] = -math.inf
    points = Points(steps=np.arange(size), values=noise, times=np.arange(size, dtype=float))
    for low, high in [(0, size), (30_000, 45_000), (31_300, 31_400), (40_001, 40_003)]:
        window = points.take(slice(low, high))
        kept, _ = downsample(window, max_points)
        wanted = {step for step in (31_337, 40_001, 40_002) if low <= step < high}
        assert wanted <= set(kept.steps.tolist())


def test_bins_stay_where_they_are_when_the_window_moves() -> None:
    size = 10_000
    points = Points(steps=np.arange(size), values=np.random.default_rng(2).standard_normal(size), times=np.zeros(size))
    first, width = downsample(points.take(slice(0, 8192)), 400)
    second, same_width = downsample(points.take(slice(1024, 9216)), 400)
    assert width == same_width == 128
    inside = (first.steps >= 1024) & (first.steps < 8192)
    again = (second.steps >= 1024) & (second.steps < 8192)
    assert np.array_equal(first.steps[inside], second.steps[again])


def test_most_of_the_points_asked_for_are_given() -> None:
    size = 100_000
    points = Points(steps=np.arange(size), values=np.random.default_rng(3).standard_normal(size), times=np.zeros(size))
    kept, _ = downsample(points, 1000)
    assert 500 <= len(kept) <= 1000
