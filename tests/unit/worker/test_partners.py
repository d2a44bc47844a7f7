"""What the first host of a run makes of how its hosts ended, and where they meet."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from queue_rows import Queue
from sqlalchemy import select

from server.db.engine import Database
from server.db.tables import Seat
from server.queue.claim import ClaimedRun, claim
from server.queue.reap import lose
from server.queue.seats import SeatState, end_seat
from server.settings import Settings
from worker import advertise
from worker.active import ActiveRuns, Requests
from worker.ending import Ending, Reason
from worker.partners import Partners, blame
from worker.scratch import drop_left_scratch, scratch_of
from worker.seat_record import MAX_LOG_CHARS, SeatRecorder, seat_outcome

LONG_S = 20 * 365 * 86400.0  # a lease that still holds at the time of the test
KILLED = {"kind": "signal", "message": "The process was killed by SIGKILL (signal 9) after step 7."}
PEER = {"kind": "peer", "message": "Connection closed by peer"}
BUG = {"kind": "exception", "message": "ValueError: no", "traceback": "in loss"}


def failed(reason: Reason, exit_code: int = 1) -> Ending:
    return Ending(outcome="failed", reason=reason, exit_code=exit_code)


def seat(node: int, outcome: str | None = None, reason: Reason | None = None, *, is_silent: bool = False) -> SeatState:
    return SeatState(
        node=node, worker=f"w{node}", outcome=outcome, reason=reason, is_open=outcome is None, is_silent=is_silent
    )


def test_a_failure_of_its_own_comes_before_a_loss_and_a_loss_before_broken_connections() -> None:
    own = failed(PEER)
    found = blame(own, [seat(1, "lost", KILLED), seat(2, "failed", BUG), seat(3, "failed", PEER)], 4)
    assert found is not None
    assert (found.outcome, found.reason) == (
        "failed", {"kind": "exception", "message": "Worker w2, host 3 of 4: ValueError: no", "traceback": "in loss"}
    )  # fmt: skip
    found = blame(own, [seat(1), seat(2, "lost", KILLED)], 3)
    assert found is not None
    assert (found.outcome, (found.reason or {})["kind"]) == ("lost", "lost")
    assert "Worker w2, host 3 of 3: The process was killed by SIGKILL" in (found.reason or {})["message"]


def test_a_silent_host_is_lost_and_a_host_that_has_not_spoken_is_waited_for() -> None:
    own = failed(PEER)
    assert blame(own, [seat(1), seat(2, "failed", PEER)], 3) is None
    found = blame(own, [seat(1, is_silent=True)], 2)
    assert found is not None
    assert (found.outcome, "its lease ran out" in (found.reason or {})["message"]) == ("lost", True)
    found = blame(own, [seat(1, "failed", PEER)], 2)
    assert found is not None
    assert (found.outcome, (found.reason or {})["message"]) == (
        "lost", "The connection between the 2 hosts of the run broke."
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Ending(outcome="completed", exit_code=0), "completed"),
        (Ending(outcome="cancelled"), "stopped"),
        (Ending(outcome="paused"), "stopped"),
        (failed({"kind": "interrupted", "message": ""}), "stopped"),
        (failed(KILLED, -signal.SIGKILL), "lost"),
        (failed(KILLED, -signal.SIGTERM), "lost"),
        (failed(KILLED, -signal.SIGSEGV), "failed"),
        (failed({"kind": "out_of_memory", "message": ""}, -signal.SIGKILL), "failed"),
        (failed(BUG), "failed"),
    ],
)
def test_how_a_part_ended_in_a_word(ending: Ending, outcome: str) -> None:
    assert seat_outcome(ending) == outcome


@pytest.fixture
def claimed(database: Database) -> tuple[Database, ClaimedRun, ClaimedRun]:
    """A run that both of its hosts have begun."""
    with database.write() as session:
        queue = Queue(session)
        (run_id,) = queue.experiment()
        queue.run(run_id).num_hosts = 2
        queue.worker(2).host = "another"
        session.flush()
        now = queue.at(1)
        first = claim(session, 1, ["cpu"], LONG_S, now)
        second = claim(session, 2, ["cpu"], LONG_S, now)
    assert first is not None
    assert second is not None
    return database, first, second


def test_the_first_host_waits_for_the_reason_of_another(claimed: tuple[Database, ClaimedRun, ClaimedRun]) -> None:
    database, first, second = claimed
    requests = Requests()

    def fail_later() -> None:
        time.sleep(0.7)
        recorder = SeatRecorder(database, second, threading.Event())
        recorder.put_log("x" * MAX_LOG_CHARS)
        recorder.put_log("its last words")
        assert recorder.finish(failed(BUG), threading.Event())

    thread = threading.Thread(target=fail_later)
    thread.start()
    judged = Partners(database, first, requests, 20.0).judged(failed(PEER))
    thread.join()
    assert (judged.outcome, (judged.reason or {})["traceback"]) == ("failed", "in loss")
    with database.read() as session:
        log = session.scalars(select(Seat.log).where(Seat.node == 1)).one()
    assert (len(log), log[-14:]) == (MAX_LOG_CHARS, "its last words")


def test_what_needs_no_question_is_not_asked(claimed: tuple[Database, ClaimedRun, ClaimedRun]) -> None:
    database, first, _ = claimed
    partners = Partners(database, first, Requests(), 20.0)
    began = time.monotonic()
    assert partners.judged(failed(BUG)) == failed(BUG), "its own failure"
    assert partners.judged(Ending(outcome="completed")) == Ending(outcome="completed")
    killed = partners.judged(failed(KILLED, -signal.SIGKILL))
    assert (killed.outcome, (killed.reason or {})["kind"]) == ("lost", "lost")
    assert time.monotonic() - began < 2


def test_nobody_is_waited_for_longer_than_patience(claimed: tuple[Database, ClaimedRun, ClaimedRun]) -> None:
    database, first, _ = claimed
    judged = Partners(database, first, Requests(), 0.3).judged(failed(PEER))
    assert (judged.outcome, "none of them says why" in (judged.reason or {})["message"]) == ("lost", True)
    requests = Requests()
    requests.lost.set()
    began = time.monotonic()
    Partners(database, first, requests, 60.0).judged(failed(PEER))
    assert time.monotonic() - began < 5


def test_a_part_of_an_attempt_that_is_over_writes_nothing(claimed: tuple[Database, ClaimedRun, ClaimedRun]) -> None:
    database, first, second = claimed
    with database.write() as session:
        lose(session, first.run_id, 1, {"kind": "lost", "message": "gone"})
    lost = threading.Event()
    assert not SeatRecorder(database, second, lost).finish(failed(BUG), threading.Event())
    assert lost.is_set()
    with database.read() as session:
        assert session.scalars(select(Seat.outcome).where(Seat.node == 1)).one() == "released"


def test_the_first_host_s_part_is_not_for_others_to_end(claimed: tuple[Database, ClaimedRun, ClaimedRun]) -> None:
    database, first, _ = claimed
    with database.write() as session:
        end_seat(session, first.run_id, 1, 1, "completed", None, 0, "")
    with database.read() as session:
        assert session.scalars(select(Seat.state).order_by(Seat.node)).all() == ["taken", "ended"]


def test_requests_reach_attempts_by_their_part() -> None:
    active = ActiveRuns()
    alone, led, joined = active.add(1, 1), active.add(2, 1, 0), active.add(3, 1, 1)
    assert (active.led(), active.joined()) == ([(2, 1)], [(3, 1)])
    active.break_off([(2, 1), (9, 9)])
    assert [requests.broken.is_set() for requests in (alone, led, joined)] == [False, True, False]
    active.remove(2, 1)
    assert active.led() == []


def test_hosts_that_share_a_folder_have_a_scratch_folder_each(database: Database, tmp_path: Path) -> None:
    folders = [scratch_of(tmp_path, 3, 1, node) for node in (0, 1, 2)]
    assert len(set(folders)) == 3
    for folder in folders:
        folder.mkdir(parents=True)
    assert drop_left_scratch(database, tmp_path) == [(3, 1)]
    assert not any(folder.exists() for folder in folders)


def test_the_meeting_point_is_the_address_that_leads_to_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ways = {"db.example:5432": "10.0.0.5", "10.0.0.9:6390": "10.0.0.6", "localhost:5432": "127.0.0.1"}
    monkeypatch.setattr(advertise, "address_towards", lambda endpoint: ways[endpoint])

    def settings(**given: str) -> Settings:
        return Settings(data_dir=tmp_path, **given)  # type: ignore[arg-type]  # as the environment gives them

    assert advertise.own_address(settings()) == "127.0.0.1", "a file and a socket are on this machine"
    assert advertise.own_address(settings(database_url="postgresql+psycopg://a:b@db.example/x")) == "10.0.0.5"
    local = {"database_url": "postgresql+psycopg://a:b@localhost/x"}
    assert advertise.own_address(settings(**local, broker_url="redis://10.0.0.9:6390/0")) == "10.0.0.6"
    assert advertise.own_address(settings(database_url="postgresql+psycopg://a@/x?host=/run/pg")) == "127.0.0.1"
    named = advertise.endpoint(settings(advertise_address="gpu-7.lab"))
    assert named.startswith("gpu-7.lab:")
    assert 1024 < int(named.rpartition(":")[2]) < 65536
    assert advertise.endpoint(settings(advertise_address="fd00::7")).startswith("[fd00::7]:")
