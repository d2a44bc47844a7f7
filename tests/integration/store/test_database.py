"""The two kinds of transaction, on both databases."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from server.db.engine import Database
from server.db.errors import StoreError, StoreFull, StoreUnavailable
from server.db.tables import Audit, Project

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def add(database: Database, name: str) -> None:
    with database.write() as session:
        session.add(Project(name=name, created_at=NOW))


def count(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Project)) or 0


def test_write_commits_and_read_keeps_nothing(any_database: Database) -> None:
    add(any_database, "kept")
    with any_database.read() as session:
        project = session.scalars(select(Project)).one()
        assert (project.name, project.created_at) == ("kept", NOW)
        project.name = "changed only here"
    assert count(any_database) == 1
    with any_database.read() as session:
        assert session.scalars(select(Project.name)).one() == "kept"


def test_an_exception_rolls_the_whole_block_back(any_database: Database) -> None:
    def fail() -> None:
        with any_database.write() as session:
            session.add(Project(name="gone", created_at=NOW))
            session.flush()
            raise KeyError("the caller failed")

    with pytest.raises(KeyError):
        fail()
    assert count(any_database) == 0


def test_a_reader_sees_one_snapshot(any_database: Database) -> None:
    with any_database.read() as session:
        before = session.scalar(select(func.count()).select_from(Project))
        add(any_database, "meanwhile")
        assert session.scalar(select(func.count()).select_from(Project)) == before == 0
    assert count(any_database) == 1


def test_writers_that_read_first_wait_for_each_other(database: Database) -> None:
    """Deferred transactions would fail here with SQLITE_BUSY_SNAPSHOT whatever the timeout."""
    add(database, "0")
    errors: list[BaseException] = []

    def climb() -> None:
        try:
            for _ in range(20):
                with database.write() as session:
                    project = session.scalars(select(Project)).one()
                    project.name = str(int(project.name) + 1)
        except BaseException as error:  # noqa: BLE001 - reported by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=climb) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with database.read() as session:
        assert session.scalars(select(Project.name)).one() == "80"


def test_a_fault_of_the_statement_stays_what_it_is(any_database: Database) -> None:
    add(any_database, "twice")
    with pytest.raises(IntegrityError):
        add(any_database, "twice")


def test_a_missing_table_is_not_an_outage(database: Database) -> None:
    with pytest.raises(OperationalError), database.read() as session:
        session.execute(text("SELECT * FROM nowhere"))


def test_a_full_database_says_so_and_writes_nothing(database: Database) -> None:
    with database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    database.engine.dispose()
    limited = Database(database.url)
    with limited.engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 4}")

    def fill() -> None:
        with limited.write() as session:
            for number in range(4):
                session.add(Project(name=str(number), created_at=NOW))
                session.add(Audit(at=NOW, action="x", subject="y", detail={"blob": "z" * 20_000}))
                session.flush()

    with pytest.raises(StoreFull, match=r"full.*free some space.*nothing was written"):
        fill()
    assert count(limited) == 0
    limited.dispose()


def test_a_locked_database_is_unavailable_not_broken(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.db.engine.BUSY_TIMEOUT_MS", 50)
    impatient = Database(database.url)
    with database.write(), pytest.raises(StoreUnavailable, match="locked"):
        add(impatient, "must wait")
    add(impatient, "now")
    assert count(impatient) == 1
    impatient.dispose()


def test_a_folder_that_cannot_hold_the_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "db.sqlite3").mkdir()
    database = Database(f"sqlite:///{tmp_path / 'db.sqlite3'}")
    with pytest.raises(StoreUnavailable, match="check its folder"), database.read() as session:
        session.execute(text("SELECT 1"))
    database.dispose()


def test_a_server_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    database = Database(f"postgresql+psycopg://nobody@/none?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match="cannot be reached"), database.write() as session:
        session.execute(text("SELECT 1"))
    database.dispose()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r"file/data of the database cannot be made .*AMPBOARD_DATA_DIR"):
        Database(f"sqlite:///{tmp_path / 'file' / 'data' / 'db.sqlite3'}")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("not a url with hunter2", "is no URL: write postgresql"),
        ("mysql://root:hunter2@host/name", "begins with mysql://, which is not supported: use postgresql"),
    ],
)
def test_other_databases_are_refused_without_repeating_the_password(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        Database(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_usual_spellings_of_a_postgres_url_work(scheme: str) -> None:
    database = Database(f"{scheme}://user:secret@localhost/name")
    assert database.url == "postgresql+psycopg://user:secret@localhost/name"
    database.dispose()


@pytest.mark.postgres
def test_connections_that_the_server_closed_are_replaced(postgres: Database) -> None:
    add(postgres, "before")

    def lose_the_connection() -> None:
        with postgres.write() as session, postgres.write() as victim:
            pid = victim.scalar(text("SELECT pg_backend_pid()"))
            session.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            victim.execute(text("SELECT 1"))

    with pytest.raises(StoreUnavailable):
        lose_the_connection()
    add(postgres, "after")
    assert count(postgres) == 2
