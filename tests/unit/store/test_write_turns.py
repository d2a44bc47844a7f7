"""Writers of one process take turns: nobody is overtaken, nobody waits for ever, and a failure lets the next one in."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import text

from server.db import engine
from server.db.engine import Database
from server.db.errors import StoreUnavailable
from server.db.turns import Turns


def waiting(turns: Turns, number: int) -> None:
    """Return once so many wait."""
    pause = threading.Event()
    while len(turns._waiting) < number:
        pause.wait(0.001)


def test_whoever_waits_longest_is_next() -> None:
    turns, order, threads = Turns(), list[int](), list[threading.Thread]()

    def write(number: int) -> None:
        with turns.take(60):
            order.append(number)

    with turns.take(60):
        for number in range(6):
            threads.append(threading.Thread(target=write, args=(number,)))
            threads[-1].start()
            waiting(turns, number + 1)
    for thread in threads:
        thread.join()
    assert order == list(range(6))


def test_whoever_gives_up_waiting_is_passed_over() -> None:
    turns, done = Turns(), threading.Event()

    def write() -> None:
        with turns.take(60):
            done.set()

    with turns.take(60):
        with pytest.raises(StoreUnavailable, match=r"busy for 0\.01 s"), turns.take(0.01):
            raise AssertionError("it is not its turn")
        thread = threading.Thread(target=write)
        thread.start()
        waiting(turns, 1)
    thread.join()
    assert done.is_set()


def test_a_block_that_fails_lets_the_next_one_in() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.take(1):
        raise ZeroDivisionError
    with turns.take(0):
        pass


def test_a_transaction_that_cannot_begin_lets_the_next_one_in(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.write() as session:
        assert session.scalar(text("SELECT 1")) == 1
        monkeypatch.setattr(engine, "BUSY_TIMEOUT_MS", 10)
        with pytest.raises(StoreUnavailable, match="busy"), database.write():
            raise AssertionError("two write at once")
    with database.write() as session:
        assert session.scalar(text("SELECT 1")) == 1
