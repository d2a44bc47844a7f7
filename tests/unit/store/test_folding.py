"""Folding segments into chunks changes nothing that can be read: properties over random histories."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from histories import add_run, change_run, segment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from amp_core import events
from server.db.engine import Database
from server.db.tables import Axis, Chunk, Fold, Segment
from server.metrics import chunk_codec
from server.metrics import chunks as chunks_module
from server.metrics import fold as fold_module
from server.metrics.cursors import RunCursor
from server.metrics.downsample import MIN_POINTS
from server.metrics.fold import fold
from server.metrics.read import series_names, window, windows
from server.metrics.run_stream import run_news
from server.metrics.write import store_frames

many = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
values = st.one_of(st.sampled_from([0.0, 1.0, -5.5, math.nan, math.inf, -math.inf]), st.floats())
History = list[list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of seven points and previews of a few bins, so that short histories have many."""
    monkeypatch.setattr(fold_module, "CHUNK_POINTS", 7)
    monkeypatch.setattr(chunk_codec, "NUM_BINS", 2)


def histories() -> st.SearchStrategy[History]:
    """Mostly rising steps, so that previews are used; some histories repeat steps and go back."""
    start = st.integers(-50, 400)
    rising = st.tuples(start, st.lists(st.lists(values, max_size=20), min_size=1, max_size=14)).map(_rising)
    wild = st.lists(st.lists(st.tuples(st.integers(-3, 40), values), max_size=8), min_size=1, max_size=12)
    return st.one_of(rising, rising, wild)


def _rising(drawn: tuple[int, list[list[float]]]) -> History:
    step, parts = drawn
    history: History = []
    for part in parts:
        history.append([(step + offset, value) for offset, value in enumerate(part)])
        step += len(part)
    return history


def frames_of(history: History) -> list[events.Frame]:
    return [
        segment(number, {"a": ([step for step, _ in points], [value for _, value in points]), "b": ([number], [0.0])})
        for number, points in enumerate(history, 1)
    ]


def write(database: Database, run_id: int, frames: list[events.Frame], attempt: int = 1, *, folds: bool = False) -> int:
    with database.write() as session:
        stored = store_frames(session, run_id, attempt, frames)
        if folds:
            fold(session, run_id, attempt)
        return stored


def reads(database: Database, run_id: int) -> Any:
    """Everything a reader can ask, in a form that compares NaN as equal to itself."""
    with database.read() as session:
        shown = [
            window(session, run_id, name, start, end, max_points).to_json() | {"run_id": 0}
            for name, start, end, max_points in (
                ("a", None, None, MIN_POINTS),
                ("a", None, None, 40),
                ("a", None, None, 1000),
                ("a", 5, None, MIN_POINTS),
                ("a", 12, 133, 24),
                ("b", None, 60, 1000),
            )
        ]
        shown += [
            found["a"].to_json() | {"run_id": 0}
            for found in windows(session, [run_id], ["a"], max_points=MIN_POINTS, after={run_id: 9}).values()
            if "a" in found
        ]
        told = series_names(session, run_id)
    return repr((told, shown))


def streamed(database: Database, run_id: int, cursor: RunCursor) -> list[str]:
    """Every message from a place on, with the place after it; the state of the run aside."""
    told: list[str] = []
    more = True
    while more:
        news = run_news(database, run_id, cursor)
        assert news is not None
        told += [message.decode() for message in news.messages]
        cursor, more = news.cursor, news.more
    return told


@many
@given(st.lists(histories(), min_size=1, max_size=3), st.data())
def test_a_folded_history_reads_and_streams_the_same(
    database: Database, attempts: list[History], data: st.DataObject
) -> None:
    plain, folded = add_run(database), add_run(database)
    for number, history in enumerate(attempts, 1):
        frames = frames_of(history)
        for run_id in (plain, folded):
            change_run(database, run_id, attempt=number)
        write(database, plain, frames, number)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(frames)), max_size=5)))
        for low, high in zip([0, *cuts], [*cuts, len(frames)], strict=True):
            write(database, folded, frames[low:high], number, folds=data.draw(st.booleans()))
            again = data.draw(st.integers(0, high))
            assert write(database, folded, frames[again:high], number, folds=data.draw(st.booleans())) == 0
    assert reads(database, plain) == reads(database, folded)
    place = RunCursor(data.draw(st.integers(1, len(attempts))), data.draw(st.integers(0, 14)))
    for cursor in (RunCursor(), place):
        assert streamed(database, plain, cursor) == streamed(database, folded, cursor)


def test_a_window_that_fits_is_exact_though_the_series_does_not(database: Database) -> None:
    """Seventeen points do not fit; the eleven from step 5 on do, and none of them is a preview's."""
    run_id = add_run(database)
    first = [(step, 0.0) for step in (0, 0, 0, 0, 0, 29, 7, 16)]
    second = [(step, 0.0) for step in (13, 28, 33, 20, 35, 30, 6, 0)]
    for number, history in enumerate(([first, second], [[(400, 0.0)]]), 1):
        change_run(database, run_id, attempt=number)
        write(database, run_id, frames_of(history), number, folds=True)
    with database.read() as session:
        found = window(session, run_id, "a", 5, None, MIN_POINTS)
    assert (found.kind, found.num_stored) == ("exact", 11)
    assert found.points.steps.tolist() == [6, 7, 13, 16, 20, 28, 29, 30, 33, 35, 400]


@many
@given(histories(), st.lists(st.integers(-60, 700), max_size=4))
def test_the_union_of_windows_is_the_whole(database: Database, history: History, cuts: list[int]) -> None:
    run_id = add_run(database)
    frames = frames_of(history)
    write(database, run_id, frames[: len(frames) // 2], folds=True)
    write(database, run_id, frames[len(frames) // 2 :])
    stored = sorted(((step, i) for i, (step, _) in enumerate(p for part in history for p in part)))
    flat = [p for part in history for p in part]
    edges = [None, *sorted(set(cuts)), None]
    seen: list[tuple[int, float]] = []
    with database.read() as session:
        for low, high in itertools.pairwise(edges):
            part = window(session, run_id, "a", low, None if high is None else high - 1, 100_000).points
            seen += list(zip(part.steps.tolist(), part.values.tolist(), strict=True))
    assert repr(seen) == repr([flat[i] for _, i in stored])


@many
@given(histories(), st.integers(-60, 400), st.integers(0, 400), st.sampled_from([MIN_POINTS, 30, 64]))
def test_every_extreme_and_non_finite_value_is_seen_and_counted(
    database: Database, history: History, low: int, span: int, max_points: int
) -> None:
    run_id = add_run(database)
    write(database, run_id, frames_of(history), folds=True)
    stored = np.array([v for points in history for step, v in points if low <= step <= low + span], float)
    with database.read() as session:
        shown = window(session, run_id, "a", low, low + span, max_points)
    assert (shown.num_stored, shown.num_points <= max_points) == (len(stored), True)
    seen = shown.points.values
    for test, kind in ((np.isnan, "nan"), (np.isposinf, "pos_inf"), (np.isneginf, "neg_inf")):
        assert test(seen).any() == test(stored).any()
        if shown.counts is not None:
            assert shown.counts[kind].sum() == test(stored).sum()
    finite = stored[np.isfinite(stored)]
    if len(finite):
        assert seen[np.isfinite(seen)].min() == finite.min()
        assert seen[np.isfinite(seen)].max() == finite.max()


def test_a_fold_is_due_by_itself_and_leaves_full_chunks_and_one_unfinished(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_module, "FOLD_SEGMENTS", 10)
    run_id = add_run(database)
    for number in range(1, 26):
        write(database, run_id, [segment(number, {"a": ([2 * number, 2 * number + 1], [1.0, 2.0]), "b": ([1], [1.0])})])
    with database.read() as session:
        sizes = session.execute(
            select(Chunk.number, Chunk.num_points).where(Chunk.name == "a").order_by(Chunk.number)
        ).all()
        gathered = session.get_one(Fold, (run_id, 1))
        assert [tuple(row) for row in sizes] == [(0, 7), (1, 7), (2, 7), (3, 7), (4, 7), (5, 5)]
        assert (gathered.sequence, gathered.num_segments, gathered.num_points) == (20, 5, 15)
        assert session.scalar(select(func.count()).select_from(Segment)) == 5
        orphans = select(func.count()).where(Axis.id.not_in(select(Chunk.axis_id)))
        assert session.scalar(orphans) == 0


def test_series_logged_together_share_their_axis(database: Database) -> None:
    run_id = add_run(database)
    series = {f"s{n}": (list(range(5)), [float(n)] * 5) for n in range(20)}
    write(database, run_id, [segment(1, series)], folds=True)
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Axis)) == 1
        assert session.scalar(select(func.count()).select_from(Chunk)) == 20


def test_an_overview_decodes_nothing_and_a_zoom_few_chunks(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    run_id = add_run(database)
    size = fold_module.CHUNK_POINTS
    rng = np.random.default_rng(0)
    for number in range(1, 101):
        steps = range((number - 1) * size, number * size)
        write(database, run_id, [segment(number, {"a": (steps, rng.normal(size=size))})])
    with database.write() as session:
        fold(session, run_id, 1)
    decoded: list[bytes] = []
    real = chunks_module.unpack_values
    monkeypatch.setattr(chunks_module, "unpack_values", lambda payload: decoded.append(payload) or real(payload))
    with database.read() as session:
        whole = window(session, run_id, "a", max_points=2000)
        assert (len(decoded), whole.num_stored, whole.kind) == (0, 100 * size, "binned")
        assert window(session, run_id, "a", 10 * size + 5, 11 * size + 5, max_points=10_000).num_points == size + 1
        assert len(decoded) == 2
