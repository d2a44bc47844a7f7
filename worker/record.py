"""Storing what an attempt says: in order, a few times a second, through outages of the store."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from sqlalchemy.orm import Session

from amp_core.events import Frame
from server.db.engine import Database
from server.db.errors import LeaseLost, StoreUnavailable
from server.metrics.write import store_frames, store_log
from server.queue.finish import finish
from server.queue.reap import lose
from worker.ending import Ending, Reason
from worker.spool import EndRecord, FrameRecord, LogRecord, Record, Spool, SpoolFull, attempt_of, spool_path

FLUSH_S = 0.2
RETRY_S = 1.0
BATCH_RECORDS = 500

_log = logging.getLogger(__name__)


class Recorder:
    """Stores the frames and the log of one attempt from a thread of its own.

    While the store is away everything waits in a `Spool`, and is stored in its order afterwards. ``lost`` is set when
    the attempt is no longer ours: nothing is written from then on. ``failure`` is set when the run cannot go on
    because what it says can be kept nowhere.
    """

    def __init__(self, database: Database, folder: Path, run_id: int, attempt: int, lost: threading.Event) -> None:
        self.lost = lost
        self.failure: Reason | None = None
        self._database = database
        self._run_id, self._attempt = run_id, attempt
        self._spool = Spool(spool_path(folder, run_id, attempt))
        self._inbox: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._log_position = 0
        self._is_refused = False
        self._retry_at = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"record-{run_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put_frame(self, frame: Frame) -> None:
        """Take one event; called by the one thread that reads the child's pipe."""
        self._inbox.put(FrameRecord(frame))

    def put_log(self, text: str) -> None:
        """Take the next piece of the log; called by the one thread that reads it."""
        if text:
            self._inbox.put(LogRecord(self._log_position, text))
            self._log_position += len(text)

    def finish(self, ending: Ending | None, give_up: threading.Event) -> bool:
        """Store the rest, and with it how the attempt ended; return whether that worked.

        Waits for a store that is away until ``give_up`` is set; the spool then stays on disk for the next start of this
        worker. Without an ending the attempt stays open.
        """
        self._ending.set()
        self._thread.join()
        last: list[Record] = [] if ending is None else [EndRecord(ending)]
        while not self._flush(last):
            last = []
            if give_up.wait(RETRY_S):
                return False
        return not self.lost.is_set()

    def _run(self) -> None:
        while not self._ending.wait(FLUSH_S):
            self._flush()

    def _flush(self, last: Sequence[Record] = ()) -> bool:
        """Store what has come in; True when nothing is left to store."""
        records = [*self._drain(), *last]
        if self.lost.is_set():
            self._spool.clear()  # the heartbeat may have found out first
            return True
        if self._is_refused:
            records = list(last)  # what comes after a refusal would leave a gap; how it ended is still stored
        try:
            if self._spool:
                self._spool.append(records)
                if time.monotonic() < self._retry_at and not last:
                    return False
                replay(self._database, self._spool, self._run_id, self._attempt)
                self._retry_at = 0.0
            elif records:
                self._store_or_spool(records)
        except LeaseLost as error:
            _log.warning("%s", error)
            self._spool.clear()
            self.lost.set()
        except StoreUnavailable as error:
            self._note_outage(error)
        except SpoolFull as error:
            self.failure = {"kind": "spool_full", "message": str(error), "remedy": "Retry the run afterwards."}
        except Exception as error:  # noqa: BLE001 - a run must end with a reason whatever goes wrong here
            return self._refuse(error, is_last=bool(last))
        return not self._spool

    def _refuse(self, error: Exception, *, is_last: bool) -> bool:
        """Note that what the run says cannot be stored; end the attempt with that reason if it was to end now."""
        _log.error("what run %d says could not be stored", self._run_id, exc_info=error)
        is_first = not self._is_refused
        self._is_refused = True
        self._spool.clear()
        self.failure = {
            "kind": "store",
            "message": f"What the run says could not be stored: {type(error).__name__}: {str(error)[:500]}",
            "remedy": "See the worker's log; if the workload names series or metrics oddly, rename them.",
        }
        if is_last and is_first:
            return self._flush([EndRecord(Ending(outcome="failed", reason=self.failure))])
        return True

    def _store_or_spool(self, records: list[Record]) -> None:
        try:
            for batch in _batches(records):
                with self._database.write() as session:
                    store_records(session, self._run_id, self._attempt, batch)
        except StoreUnavailable:
            self._spool.append(records)
            raise

    def _note_outage(self, error: StoreUnavailable) -> None:
        if self._retry_at == 0.0:
            _log.warning("the store is away (%s): run %d goes on, and is spooled", error, self._run_id)
        self._retry_at = time.monotonic() + RETRY_S

    def _drain(self) -> Iterator[Record]:
        for _ in range(self._inbox.qsize()):
            yield self._inbox.get_nowait()


def replay(database: Database, spool: Spool, run_id: int, attempt: int) -> None:
    """Store everything in the spool, then empty it. Raises `LeaseLost` and `StoreUnavailable`."""
    num = 0
    for batch in _batches(spool.records()):
        with database.write() as session:
            store_records(session, run_id, attempt, batch)
        num += len(batch)
    spool.clear()
    _log.info("stored %d spooled records of run %d, attempt %d", num, run_id, attempt)


def replay_folder(database: Database, folder: Path) -> None:
    """Store what an earlier process of this worker left behind; what nobody may store any more is deleted.

    Raises:
        StoreUnavailable: if the store is away; what is left stays on disk.
    """
    for path in sorted(folder.glob("*.spool")):
        found = attempt_of(path)
        if found is None:
            continue
        spool = Spool(path)
        try:
            replay(database, spool, *found)
        except LeaseLost as error:
            _log.info("%s", error)
            spool.clear()
        except StoreUnavailable:
            raise
        except Exception:  # noqa: BLE001 - one spool must not keep the worker from starting
            path.rename(path.with_suffix(".refused"))
            _log.exception("%s cannot be stored; it is kept as %s", path, path.with_suffix(".refused"))


def store_records(session: Session, run_id: int, attempt: int, records: Sequence[Record]) -> None:
    """Store a batch in one transaction: frames, then the log, then the end of the attempt."""
    frames = [record.frame for record in records if isinstance(record, FrameRecord)]
    if frames:
        store_frames(session, run_id, attempt, frames)
    for position, text in _joined(record for record in records if isinstance(record, LogRecord)):
        store_log(session, run_id, attempt, position, text)
    for record in records:
        if isinstance(record, EndRecord):
            ending = record.ending
            if ending.outcome == "lost":
                lose(session, run_id, attempt, ending.reason or {"kind": "lost"}, ending.exit_code)
                continue
            finish(session, run_id, attempt, ending.outcome, ending.reason, ending.exit_code)


def _joined(pieces: Iterable[LogRecord]) -> Iterator[tuple[int, str]]:
    """Neighbouring pieces as one, so that a chatty run does not make a row of each line."""
    start, texts, end = 0, list[str](), -1
    for piece in pieces:
        if piece.position != end and texts:
            yield start, "".join(texts)
            texts = []
        if not texts:
            start = piece.position
        texts.append(piece.text)
        end = piece.position + len(piece.text)
    if texts:
        yield start, "".join(texts)


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    iterator = iter(records)
    while batch := list(islice(iterator, BATCH_RECORDS)):
        yield batch
