"""The losses that comparisons read: kept while nothing new is stored, read anew with the first new point."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from databases import Database
from histories import add_experiment, add_run, change_run, segment
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from server.comparisons import losses
from server.comparisons.losses import Curve, losses_of
from server.db.tables import Run, Segment, Series
from server.metrics.write import store_frames


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Of which runs points were read, call by call."""
    calls: list[list[int]] = []
    read = losses._read

    def counted(session: Session, run_ids: Sequence[int]) -> dict[int, Curve]:
        calls.append(list(run_ids))
        return read(session, run_ids)

    monkeypatch.setattr(losses, "_read", counted)
    return calls


def store(database: Database, run_id: int, sequence: int, steps: list[int], values: list[float]) -> None:
    with database.write() as session:
        attempt = session.get_one(Run, run_id).attempt
        store_frames(session, run_id, attempt, [segment(sequence, {"train/loss": (steps, values)})])


def told(database: Database) -> dict[int, Curve]:
    with database.read() as session:
        return losses_of(session, session.scalars(select(Run).order_by(Run.id)).all())


def test_points_are_read_again_only_of_runs_that_have_new_ones(database: Database, asked: list[list[int]]) -> None:
    experiment = add_experiment(database)
    first, second, empty = (add_run(database, experiment, seed=seed) for seed in range(3))
    store(database, first, 1, [1, 2], [2.0, 1.5])
    store(database, second, 1, [1], [3.0])
    whole = {first: ((1, 2), (2.0, 1.5)), second: ((1,), (3.0,))}
    assert told(database) == whole
    assert told(database) == whole
    store(database, second, 2, [2], [2.5])
    assert told(database) == whole | {second: ((1, 2), (3.0, 2.5))}
    assert asked == [[first, second], [], [second]]
    assert empty not in told(database)


def test_a_newer_attempt_replaces_what_was_kept(database: Database) -> None:
    run_id = add_run(database, add_experiment(database))
    store(database, run_id, 1, [1, 2], [2.0, 1.5])
    assert told(database) == {run_id: ((1, 2), (2.0, 1.5))}
    change_run(database, run_id, attempt=2)
    store(database, run_id, 1, [2], [9.0])
    assert told(database) == {run_id: ((1, 2), (2.0, 9.0))}


def test_what_is_not_committed_is_never_kept(database: Database, asked: list[list[int]]) -> None:
    run_id = add_run(database, add_experiment(database))
    with database.write() as session:
        store_frames(session, run_id, 1, [segment(1, {"train/loss": ([1], [7.0])})])
        assert losses_of(session, [session.get_one(Run, run_id)]) == {run_id: ((1,), (7.0,))}
        session.execute(delete(Segment))
        session.execute(delete(Series))
    store(database, run_id, 1, [1], [2.0])
    assert told(database) == {run_id: ((1,), (2.0,))}
    assert asked == [[run_id], [run_id]]
