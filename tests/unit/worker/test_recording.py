"""What a run says is stored in order, once, through outages of the store and refusals of the disk."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from queue_rows import Queue
from sqlalchemy import select
from sqlalchemy.orm import Session

from amp_core.events import Column, Evaluated, Frame, Segment
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.tables import Event, Log, Run
from server.db.tables import Segment as SegmentRow
from server.queue.claim import claim
from server.queue.reap import reap
from worker import record
from worker.ending import Ending
from worker.record import Recorder, replay_folder
from worker.spool import EndRecord, FrameRecord, LogRecord, Spool, SpoolFull, attempt_of, read_spool, spool_path

NEVER = threading.Event()
COMPLETED = Ending(outcome="completed", exit_code=0)


class FlakyDatabase(Database):
    """A database whose writers can be turned away."""

    is_away = False

    @contextmanager
    def write(self) -> Iterator[Session]:
        if self.is_away:
            raise StoreUnavailable("it is away")
        with super().write() as session:
            yield session


def frame(sequence: int) -> Frame:
    return Frame(
        sequence=sequence, at=1.0, event=Evaluated(step=sequence, metrics={"loss": 0.5}, num_samples=1, final=False)
    )


def segment(sequence: int, *, step_bytes: int = 8) -> Frame:
    column = Column(
        name="train/loss",
        steps=struct.pack("<q", sequence)[:step_bytes],
        values=struct.pack("<d", 0.5),
        times=struct.pack("<d", 1.0),
    )
    return Frame(sequence=sequence, at=1.0, event=Segment(columns=[column]))


@pytest.fixture
def store(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyDatabase]:
    """A store with one running attempt: run 1, attempt 1."""
    monkeypatch.setattr(record, "FLUSH_S", 0.02)
    monkeypatch.setattr(record, "RETRY_S", 0.05)
    database = FlakyDatabase(sqlite_url)
    with database.write() as session:
        queue = Queue(session)
        assert queue.experiment() == [1]
        assert claim(session, 1, ["cpu"], 15) is not None
    yield database
    database.dispose()


def stored(database: Database) -> tuple[list[int], str, str]:
    """Sequences of the events, the log, and the run's state."""
    with database.read() as session:
        sequences = list(session.scalars(select(Event.sequence).order_by(Event.sequence)))
        log = "".join(session.scalars(select(Log.text).order_by(Log.position)))
        return sequences, log, session.get_one(Run, 1).state


def test_everything_is_stored_and_the_end_with_the_last(store: FlakyDatabase, tmp_path: Path) -> None:
    recorder = Recorder(store, tmp_path, 1, 1, threading.Event())
    recorder.start()
    for number in range(1, 40):
        recorder.put_frame(frame(number))
        recorder.put_log(f"line {number}\n")
        time.sleep(0.003)
    assert recorder.finish(COMPLETED, NEVER)
    sequences, log, state = stored(store)
    assert sequences == list(range(1, 40))
    assert log == "".join(f"line {number}\n" for number in range(1, 40))
    assert state == "completed"


def test_an_outage_is_spooled_and_replayed_in_order(store: FlakyDatabase, tmp_path: Path) -> None:
    recorder = Recorder(store, tmp_path, 1, 1, threading.Event())
    recorder.start()
    for number in range(1, 61):
        store.is_away = 10 < number < 50
        recorder.put_frame(frame(number))
        recorder.put_log(f"{number} ")
        time.sleep(0.005)
        if number == 45:
            assert list(read_spool(spool_path(tmp_path, 1, 1)))
    assert recorder.finish(COMPLETED, NEVER)
    sequences, log, state = stored(store)
    assert sequences == list(range(1, 61))
    assert log.split() == [str(number) for number in range(1, 61)]
    assert state == "completed"
    assert list(tmp_path.glob("*.spool")) == []


def test_the_next_worker_stores_what_the_last_could_not(store: FlakyDatabase, tmp_path: Path) -> None:
    recorder = Recorder(store, tmp_path, 1, 1, threading.Event())
    recorder.start()
    store.is_away = True
    for number in range(1, 21):
        recorder.put_frame(frame(number))
    give_up = threading.Event()
    give_up.set()
    assert not recorder.finish(COMPLETED, give_up)
    store.is_away = False
    (tmp_path / "note.txt").write_text("not a spool")
    replay_folder(store, tmp_path)
    replay_folder(store, tmp_path)
    sequences, _, state = stored(store)
    assert sequences == list(range(1, 21))
    assert state == "completed"


def test_a_lost_lease_stops_all_writing(store: FlakyDatabase, tmp_path: Path) -> None:
    recorder = Recorder(store, tmp_path, 1, 1, threading.Event())
    recorder.start()
    recorder.put_frame(frame(1))
    with store.write() as session:
        assert len(reap(session, Queue.at(3e9))) == 1
    recorder.put_frame(frame(2))
    assert recorder.lost.wait(2)
    recorder.put_frame(frame(3))
    assert not recorder.finish(COMPLETED, NEVER)
    sequences, _, state = stored(store)
    assert 3 not in sequences
    assert state == "queued"


def test_what_was_spooled_for_an_attempt_is_gone_once_it_is_lost(store: FlakyDatabase, tmp_path: Path) -> None:
    """Whoever finds out first, the recorder or the heartbeat."""
    lost = threading.Event()
    recorder = Recorder(store, tmp_path, 1, 1, lost)
    recorder.start()
    store.is_away = True
    recorder.put_frame(frame(1))
    path = spool_path(tmp_path, 1, 1)
    deadline = time.monotonic() + 5
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    store.is_away = False
    lost.set()
    assert not recorder.finish(COMPLETED, NEVER)
    assert not path.exists()


def test_what_cannot_be_stored_ends_the_run_with_the_reason(store: FlakyDatabase, tmp_path: Path) -> None:
    recorder = Recorder(store, tmp_path, 1, 1, threading.Event())
    recorder.start()
    recorder.put_frame(segment(1, step_bytes=3))
    assert recorder.finish(COMPLETED, NEVER)
    assert stored(store)[2] == "failed"
    with store.read() as session:
        reason = session.get_one(Run, 1).reason
        assert session.scalars(select(SegmentRow)).all() == []
    assert reason is not None
    assert reason["kind"] == "store"
    assert "train/loss" in reason["message"]


def test_a_full_disk_is_bridged_by_memory_and_then_said(store: FlakyDatabase, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    spool = Spool(tmp_path / "file" / "1-1.spool", max_memory_bytes=2000)
    spool.append([FrameRecord(frame(1))])
    assert isinstance(spool.disk_error, OSError)
    assert list(spool.records()) == [FrameRecord(frame(1))]
    with pytest.raises(SpoolFull, match="free disk space or bring the store back"):
        spool.append([FrameRecord(frame(number)) for number in range(2, 100)])
    assert len(list(spool.records())) == 99, "nothing is thrown away"


def test_a_run_whose_words_fit_nowhere_fails_with_the_reason(
    store: FlakyDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    recorder = Recorder(store, tmp_path / "file", 1, 1, threading.Event())
    recorder._spool = Spool(tmp_path / "file" / "1-1.spool", max_memory_bytes=100)
    recorder.start()
    store.is_away = True
    recorder.put_log("x" * 500)
    deadline = time.monotonic() + 2
    while recorder.failure is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert recorder.failure is not None
    assert recorder.failure["kind"] == "spool_full"
    store.is_away = False
    assert recorder.finish(Ending(outcome="failed", reason=recorder.failure), NEVER)
    assert stored(store)[1:] == ("x" * 500, "failed")


def test_a_spool_cut_off_by_a_crash_keeps_what_is_whole(tmp_path: Path) -> None:
    path = spool_path(tmp_path, 12, 3)
    spool = Spool(path)
    records = [FrameRecord(frame(1)), LogRecord(0, "text\n"), EndRecord(COMPLETED)]
    spool.append(records)
    assert attempt_of(path) == (12, 3)
    assert attempt_of(tmp_path / "other.spool") is None
    assert list(read_spool(path)) == records
    path.write_bytes(path.read_bytes()[:-2])
    assert list(Spool(path).records()) == records[:2]
    Spool(path).clear()
    assert not Spool(path)
