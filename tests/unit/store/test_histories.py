"""Whatever way a history was written, it reads the same: properties over random histories."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from histories import add_experiment, add_run, change_run, segment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amp_core import events
from server.db.engine import Database
from server.metrics import points as points_module
from server.metrics.codec import Points
from server.metrics.downsample import MIN_POINTS
from server.metrics.points import newest_attempt_wins
from server.metrics.read import series_names, window, windows
from server.metrics.write import store_frames

many = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
values = st.one_of(st.sampled_from([0.0, 1.0, -5.5, math.nan, math.inf, -math.inf]), st.floats())
History = list[list[tuple[int, float]]]  # segments of (step, value)


def histories() -> st.SearchStrategy[History]:
    """Segments whose steps repeat and go back now and then, as those of resumed or careless runs do."""
    point = st.tuples(st.integers(-3, 40), values)
    return st.lists(st.lists(point, max_size=8), min_size=1, max_size=12)


def frames_of(history: History) -> list[events.Frame]:
    return [
        segment(number, {"a": ([step for step, _ in points], [value for _, value in points]), "b": ([number], [0.0])})
        for number, points in enumerate(history, 1)
    ]


def write(database: Database, run_id: int, frames: list[events.Frame], attempt: int = 1) -> int:
    with database.write() as session:
        return store_frames(session, run_id, attempt, frames)


def reads(database: Database, run_id: int) -> Any:
    """Everything a reader can ask, in a form that compares NaN as equal to itself."""
    with database.read() as session:
        summaries = series_names(session, run_id)
        shown = [
            window(session, run_id, name, start, end, max_points).to_json() | {"run_id": 0}
            for name in ("a", "b")
            for start, end in ((None, None), (0, 10), (5, None))
            for max_points in (MIN_POINTS, 1000)
        ]
    return repr((summaries, shown))


@many
@given(histories(), st.data())
def test_any_split_and_any_replay_read_the_same(database: Database, history: History, data: st.DataObject) -> None:
    frames = frames_of(history)
    once, pieces = add_run(database), add_run(database)
    write(database, once, frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(frames)), max_size=4)))
    for low, high in zip([0, *cuts], [*cuts, len(frames)], strict=True):
        write(database, pieces, frames[low:high])
        again = data.draw(st.integers(0, high))
        assert write(database, pieces, frames[again:high]) == 0
    assert reads(database, once) == reads(database, pieces)


@many
@given(st.lists(histories(), min_size=1, max_size=3), st.integers(-3, 41), st.integers(-3, 41))
def test_the_newest_attempt_wins_and_nothing_else_is_left_out(
    database: Database, attempts: list[History], low: int, high: int
) -> None:
    run_id = add_run(database)
    expected: dict[int, list[float]] = {}
    for number, history in enumerate(attempts, 1):
        change_run(database, run_id, attempt=number)
        write(database, run_id, frames_of(history), number)
        mine: dict[int, list[float]] = {}
        for step, value in (point for points in history for point in points):
            mine.setdefault(step, []).append(value)
        expected |= mine
    flat = [(step, value) for step in sorted(expected) for value in expected[step] if low <= step <= high]
    with database.read() as session:
        points = window(session, run_id, "a", low, high, 100_000).points
        assert points.steps.tolist() == [step for step, _ in flat]
        assert repr(points.values.tolist()) == repr([value for _, value in flat])
        later = windows(session, [run_id], ["a"], after={run_id: low}).get(run_id, {})
        if later:
            assert int(later["a"].points.steps.min()) > low


@many
@given(histories(), st.integers(-3, 40), st.integers(0, 40))
def test_extremes_and_non_finite_values_are_seen_at_each_zoom(
    database: Database, history: History, low: int, span: int
) -> None:
    run_id = add_run(database)
    write(database, run_id, frames_of(history))
    stored = np.array([v for points in history for step, v in points if low <= step <= low + span], float)
    with database.read() as session:
        shown = window(session, run_id, "a", low, low + span, MIN_POINTS)
    assert shown.num_stored == len(stored)
    seen = shown.points.values
    for test in (np.isnan, np.isposinf, np.isneginf):
        assert test(seen).any() == test(stored).any()
    finite = stored[np.isfinite(stored)]
    if len(finite):
        assert seen[np.isfinite(seen)].min() == finite.min()
        assert seen[np.isfinite(seen)].max() == finite.max()
    assert (shown.kind == "exact") == (shown.num_points == shown.num_stored <= MIN_POINTS)


def test_summaries_agree_with_the_points(database: Database) -> None:
    run_id = add_run(database)
    rng = np.random.default_rng(0)
    stored = rng.standard_normal(500)
    stored[[100, 200, 300]] = [math.nan, math.inf, -math.inf]
    for number, part in enumerate(np.split(np.arange(500), 50), 1):
        write(database, run_id, [segment(number, {"a": (part.tolist(), stored[part].tolist())})])
    with database.read() as session:
        (summary,) = series_names(session, run_id)
    finite = stored[np.isfinite(stored)]
    assert (summary["min"], summary["max"]) == (finite.min(), finite.max())
    assert (summary["last"], summary["num_points"], summary["first_non_finite_step"]) == (stored[-1], 500, 100)


def test_merging_sorts_by_step_and_keeps_repeats_in_order() -> None:
    def points(steps: list[int], tag: float) -> Points:
        size = len(steps)
        return Points(steps=np.array(steps), values=tag + np.arange(size) / 10, times=np.zeros(size))

    merged, order = newest_attempt_wins([(1, points([1, 2, 3, 3], 1.0)), (2, points([3, 4, 2, 3], 2.0))])
    assert merged.steps.tolist() == [1, 2, 3, 3, 4]
    assert merged.values.tolist() == [1.0, 2.2, 2.0, 2.3, 2.1]
    assert order is not None
    assert order.tolist() == [0, 6, 4, 7, 5]


def test_a_zoom_decodes_only_the_segments_it_needs(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = add_run(database)
    write(database, run_id, [segment(n, {"a": (list(range(10 * n, 10 * n + 10)), [0.0] * 10)}) for n in range(200)])
    decoded: list[bytes] = []
    real = points_module.unpack
    monkeypatch.setattr(points_module, "unpack", lambda payload, names: decoded.append(payload) or real(payload, names))
    with database.read() as session:
        assert window(session, run_id, "a", 995, 1014).points.steps.tolist() == list(range(995, 1015))
        assert len(decoded) == 3
        decoded.clear()
        assert len(windows(session, [run_id], ["a"], after={run_id: 1989})[run_id]["a"].points) == 10
        assert len(decoded) == 1


def test_hundreds_of_runs_are_read_at_once(database: Database) -> None:
    experiment_id = add_experiment(database)
    run_ids = [add_run(database, experiment_id) for _ in range(230)]
    for run_id in run_ids:
        write(database, run_id, [segment(1, {"a": ([1, 2], [1.0, float(run_id)])})])
    with database.read() as session:
        found = windows(session, run_ids, ["a"], after=dict.fromkeys(run_ids, 1))
    assert {run_id: by_name["a"].points.values.tolist() for run_id, by_name in found.items()} == {
        run_id: [float(run_id)] for run_id in run_ids
    }
