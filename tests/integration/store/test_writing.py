"""Frames and logs are stored once, wholly or not at all, and only for whoever holds the run; on both databases."""

from __future__ import annotations

import math
from typing import Any

import pytest
from histories import add_run, change_run, column, finished, frame, segment, started
from sqlalchemy import func, select

from amp_core import events
from amp_core.errors import ProtocolError
from server.db.engine import Database
from server.db.errors import LeaseLost, StoreFull
from server.db.tables import Artifact, Chunk, Event, Run, Segment
from server.metrics.read import series_names, window
from server.metrics.write import store_frames, store_log
from server.records.artifacts import artifact_with_content, artifacts_of
from server.records.events import events_of
from server.records.logs import log_end, read_log

NAN, INF = math.nan, math.inf


def store(database: Database, run_id: int, *frames: events.Frame, attempt: int = 1) -> int:
    with database.write() as session:
        return store_frames(session, run_id, attempt, frames)


def run_row(database: Database, run_id: int) -> Run:
    with database.read() as session:
        return session.get_one(Run, run_id)


def test_a_run_from_start_to_end(any_database: Database) -> None:
    run_id = add_run(any_database)
    skipped = events.StepSkipped(step=2, scale_before=65536.0, scale_after=32768.0)
    frames = [
        started(1),
        segment(2, {"train/loss": ([1, 2, 3], [2.0, NAN, 1.0]), "amp/skipped": ([1, 2, 3], [0, 1, 0])}),
        frame(3, skipped),
        finished(4, accuracy=0.9, loss=INF),
    ]
    assert store(any_database, run_id, *frames) == 4
    run = run_row(any_database, run_id)
    assert (run.step, run.numerics) == (3, "native")
    assert run.environment == {"torch": "2.13.0", "num_parameters": 3, "setup_s": 0.5}
    assert run.result is not None
    assert run.result["metrics"] == {"accuracy": 0.9, "loss": "Infinity"}
    with any_database.read() as session:
        rows = events_of(session, run_id)
        assert [(row.sequence, row.kind, row.step) for row in rows] == [
            (1, "started", None), (3, "step_skipped", 2), (4, "finished", None),
        ]  # fmt: skip
        assert rows[1].payload == {"step": 2, "scale_before": 65536.0, "scale_after": 32768.0}
        assert rows[1].at.timestamp() == 1_700_000_003.0
        loss = window(session, run_id, "train/loss")
    assert loss.points.steps.tolist() == [1, 2, 3]
    assert str(loss.points.values.tolist()) == "[2.0, nan, 1.0]"


def test_replays_in_any_batches_change_nothing(any_database: Database) -> None:
    run_id = add_run(any_database)
    frames = [started(1), *(segment(n, {"a": ([n], [float(n)])}) for n in range(2, 8)), finished(8)]
    assert store(any_database, run_id, *frames[:3]) == 3
    assert store(any_database, run_id, *frames[1:5], frames[4]) == 2
    assert store(any_database, run_id, *frames) == 3
    assert store(any_database, run_id, *frames) == 0
    with any_database.read() as session:
        (summary,) = series_names(session, run_id)
        assert (summary["num_points"], summary["last"]) == (6, 7.0)
        assert window(session, run_id, "a").points.steps.tolist() == list(range(2, 8))
        assert session.scalar(select(func.count()).select_from(Event)) == 2
        assert session.scalar(select(func.count()).select_from(Segment)) == 0, "its end folds what a run wrote"
        assert session.scalar(select(func.sum(Chunk.num_points))) == 6


@pytest.mark.parametrize(
    "fields",
    [{"attempt": 2}, {"state": "queued"}, {"state": "completed"}, {"state": "failed"}, {"state": "cancelled"}],
)
def test_only_the_attempt_that_runs_may_write(any_database: Database, fields: dict[str, Any]) -> None:
    run_id = add_run(any_database)
    store(any_database, run_id, started(1))
    change_run(any_database, run_id, **fields)
    with pytest.raises(LeaseLost, match=f"run {run_id} is .* attempt 1 may not write"):
        store(any_database, run_id, segment(2, {"a": ([1], [1.0])}))
    with pytest.raises(LeaseLost), any_database.write() as session:
        store_log(session, run_id, 1, 0, "late")
    with any_database.read() as session:
        assert series_names(session, run_id) == []
        assert log_end(session, run_id, 1) == 0


def test_a_run_that_is_gone_loses_its_lease(any_database: Database) -> None:
    with pytest.raises(LeaseLost, match="run 123456 is not in the store"):
        store(any_database, 123456, started(1))


def test_summaries_count_what_is_not_finite(any_database: Database) -> None:
    run_id = add_run(any_database)
    store(any_database, run_id, segment(1, {"loss": ([5, 6, 7], [3.0, INF, -2.0])}))
    store(any_database, run_id, segment(2, {"loss": ([8, 9, 10], [NAN, -INF, NAN])}))
    with any_database.read() as session:
        (summary,) = series_names(session, run_id)
    assert summary == {
        "name": "loss", "attempt": 1, "num_points": 6, "first_step": 5, "last_step": 10, "last": "NaN",
        "min": -2.0, "max": 3.0, "mean": 0.5, "num_nan": 2, "num_pos_inf": 1, "num_neg_inf": 1,
        "first_non_finite_step": 6,
    }  # fmt: skip


def test_a_series_that_was_never_finite_has_no_extremes(any_database: Database) -> None:
    run_id = add_run(any_database)
    store(any_database, run_id, segment(1, {"loss": ([1], [-INF])}))
    with any_database.read() as session:
        (summary,) = series_names(session, run_id)
    assert (summary["min"], summary["max"], summary["last"]) == (None, None, "-Infinity")


def test_a_batch_is_stored_wholly_or_not_at_all(any_database: Database) -> None:
    run_id = add_run(any_database)
    bad = events.Column(name="b", steps=b"12345678", values=b"12345678", times=b"1234")
    frames = [segment(1, {"a": ([1], [1.0])}), frame(2, events.Segment(columns=[bad]))]
    with pytest.raises(ProtocolError, match="'b' has 8 bytes of steps, 8 of values and 4 of times"):
        store(any_database, run_id, *frames)
    with any_database.read() as session:
        assert series_names(session, run_id) == []
    assert run_row(any_database, run_id).step == 0


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_series_name_must_fit(any_database: Database, name: str) -> None:
    run_id = add_run(any_database)
    with pytest.raises(ProtocolError, match=f"has {len(name)} characters: 1 to 200 fit"):
        store(any_database, run_id, frame(1, events.Segment(columns=[column(name, [1], [1.0])])))


def test_hostile_and_long_names_are_kept_as_they_are(any_database: Database) -> None:
    run_id = add_run(any_database)
    names = ["<script>alert(1)</script>", "x" * 200, "ünïcode/损失 ✓", "a'; DROP TABLE runs; --", "a,b"]
    store(any_database, run_id, segment(1, {name: ([1], [1.0]) for name in names}))
    with any_database.read() as session:
        assert {item["name"] for item in series_names(session, run_id)} == set(names)
        assert all(len(window(session, run_id, name).points) == 1 for name in names)


def test_empty_segments_and_columns_are_harmless(any_database: Database) -> None:
    run_id = add_run(any_database)
    frames = [frame(1, events.Segment(columns=[])), frame(2, events.Segment(columns=[column("a", [], [])]))]
    assert store(any_database, run_id, *frames) == 2
    assert store(any_database, run_id, *frames) == 0
    with any_database.read() as session:
        assert series_names(session, run_id) == []


def test_artifacts_are_kept_by_name_and_the_later_step_wins(any_database: Database) -> None:
    run_id = add_run(any_database)

    def picture(sequence: int, step: int, content: bytes) -> events.Frame:
        artifact = events.Artifact(name="out.png", media_type="image/png", content=content, step=step)
        return frame(sequence, artifact)

    assert store(any_database, run_id, picture(1, 10, b"ten")) == 1
    assert store(any_database, run_id, picture(1, 10, b"ten")) == 0
    assert store(any_database, run_id, picture(2, 20, b"twenty"), picture(3, 15, b"fifteen")) == 1
    with any_database.read() as session:
        (row,) = artifacts_of(session, [run_id])
        found = artifact_with_content(session, row.id)
        assert found is not None
        assert (found.content, found.step, found.num_bytes) == (b"twenty", 20, 6)
    change_run(any_database, run_id, attempt=2)
    assert store(any_database, run_id, picture(1, 10, b"again"), attempt=2) == 1
    with any_database.read() as session:
        (row,) = artifacts_of(session, [run_id])
        assert (row.attempt, row.step) == (2, 10)
        assert session.scalar(select(func.count()).select_from(Artifact)) == 2


def test_logs_join_into_one_text_however_they_were_cut(any_database: Database) -> None:
    run_id = add_run(any_database)
    text = "epoch 1 ✓\n\x00binary\n" + "line\n" * 50
    with any_database.write() as session:
        assert store_log(session, run_id, 1, 0, text[:10]) == 10
        assert store_log(session, run_id, 1, 0, text[:10]) == 0
    with any_database.write() as session:
        assert store_log(session, run_id, 1, 5, text[5:30]) == 20
        assert store_log(session, run_id, 1, 30, text[30:]) == len(text) - 30
        assert store_log(session, run_id, 1, len(text), "") == 0
    with any_database.read() as session:
        assert log_end(session, run_id, 1) == len(text)
        whole = read_log(session, run_id, 1, 0, 10_000)
        assert whole.text == text.replace("\x00", "\ufffd")
        pieces, position = [], 3
        while (piece := read_log(session, run_id, 1, position, 7)).text:
            pieces.append(piece.text)
            position = piece.next_position
        assert "".join(pieces) == whole.text[3:]
        assert position == len(text)


def test_what_json_and_postgres_cannot_hold_is_spelled(any_database: Database) -> None:
    run_id = add_run(any_database)
    failed = events.Failed(kind="exception", message="bad \x00 byte \ud800", traceback="…")
    numerics = events.Numerics(
        step=1,
        loss_scale=INF,
        modules=[
            events.ModuleStatistics(
                module="net", num_elements=1, zero_fraction=0.0, underflow_fraction=0.0, max_abs=NAN
            )
        ],
    )
    store(any_database, run_id, frame(1, numerics), frame(2, failed))
    with any_database.read() as session:
        first, second = events_of(session, run_id)
    assert first.payload["loss_scale"] == "Infinity"
    assert first.payload["modules"][0]["max_abs"] == "NaN"
    assert second.payload["message"] == "bad \ufffd byte \ufffd"


def test_a_full_disk_is_said_so_that_the_worker_can_keep_the_frames(database: Database) -> None:
    run_id = add_run(database)
    with database.engine.connect() as connection:
        connection.exec_driver_sql(
            f"PRAGMA max_page_count={connection.exec_driver_sql('PRAGMA page_count').scalar_one() + 3}"
        )
    big = events.Artifact(name="big", media_type="x/y", content=bytes(100_000), step=1)
    with pytest.raises(StoreFull, match="is full"):
        store(database, run_id, segment(1, {"a": ([1], [1.0])}), frame(2, big))
    database.engine.dispose()  # the limit belongs to the connection: there is room again
    with database.read() as session:
        assert series_names(session, run_id) == []
    assert store(database, run_id, segment(1, {"a": ([1], [1.0])}), frame(2, big)) == 2
