"""SQLite and PostgreSQL give the same answers for the same history."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from histories import add_experiment, add_run, change_run, finished, frame, segment, started
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amp_core import events
from server.db.engine import Database
from server.metrics.cursors import RunCursor
from server.metrics.experiment_stream import experiment_news
from server.metrics.fold import fold
from server.metrics.read import series_names, window
from server.metrics.run_stream import run_news
from server.metrics.write import store_frames, store_log
from server.records.events import event_json, events_of

pytestmark = pytest.mark.postgres

values = st.one_of(st.sampled_from([math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]), st.floats())
points = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 30), values), min_size=1, max_size=40)


def write(database: Database, attempts: list[list[tuple[int, float]]]) -> tuple[int, int]:
    experiment_id = add_experiment(database)
    run_id = add_run(database, experiment_id)
    for attempt, history in enumerate(attempts, 1):
        change_run(database, run_id, attempt=attempt)
        frames = [started(1)]
        for number, (step, value) in enumerate(history, 2):
            frames.append(segment(number, {"a": ([step], [value]), "b": ([number], [1.0])}))
        skip = events.StepSkipped(step=3, scale_before=2.0, scale_after=1.0)
        frames += [frame(len(frames) + 1, skip), finished(len(frames) + 2, loss=math.nan)]
        with database.write() as session:
            store_frames(session, run_id, attempt, frames)
            store_log(session, run_id, attempt, 0, f"attempt {attempt}: é ✓ \x00\n")
            if attempt < len(attempts):
                fold(session, run_id, attempt)  # as the end of an attempt does; the last one's stay segments
    change_run(database, run_id, state="completed")
    return experiment_id, run_id


def reads(database: Database, experiment_id: int, run_id: int) -> Any:
    with database.read() as session:
        told: list[Any] = [series_names(session, run_id)]
        told += [window(session, run_id, "a", low, high, 16).to_json() for low, high in ((None, None), (0, 20))]
        told += [event_json(row) for row in events_of(session, run_id)]
    cursor, more = RunCursor(), True
    while more:
        news = run_news(database, run_id, cursor)
        assert news is not None
        told += [message.decode() for message in news.messages]
        cursor, more = news.cursor, news.more
    both = experiment_news(database, experiment_id, ["a"], {}, frozenset())
    assert both is not None
    told += [message.decode() for message in both.messages]
    text = json.dumps(told)
    return (
        text.replace(f'"run_id": {run_id}', '"run_id": 0')
        .replace(f'\\"run_id\\":{run_id}', "")
        .replace(f"id: {run_id}:", "id: 0:")
    )


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(points, min_size=1, max_size=3))
def test_the_same_history_reads_the_same(
    database: Database, postgres: Database, attempts: list[list[tuple[int, float]]]
) -> None:
    assert reads(database, *write(database, attempts)) == reads(postgres, *write(postgres, attempts))
