"""Fixtures: databases for every test, SQLite always, PostgreSQL as a real server where one can be had."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from postgres_server import NoPostgresError, postgres_server
from sqlalchemy import create_engine, make_url, text

from server.db.engine import Database
from server.db.tables import Base
from server.db.upgrade import upgrade

__all__ = [
    "any_database",
    "database",
    "empty_postgres_url",
    "postgres",
    "postgres_server_url",
    "postgres_url",
    "shared_postgres_url",
    "sqlite_template",
    "sqlite_url",
]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with this program's tables, copied for each test."""
    path = tmp_path_factory.mktemp("template") / "ampboard.sqlite3"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """URL of a fresh SQLite file with this program's tables."""
    path = tmp_path / "ampboard.sqlite3"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    """A fresh SQLite database with this program's tables."""
    database = Database(sqlite_url)
    yield database
    database.dispose()


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """URL of the maintenance database of a real PostgreSQL server, shared by the whole session."""
    server = postgres_server()
    try:
        url = server.__enter__()
    except NoPostgresError as error:
        pytest.skip(str(error))  # under CI a skip is a failure: see conftest.py
    yield url
    server.__exit__(None, None, None)


@pytest.fixture
def empty_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of a fresh PostgreSQL database without tables."""
    with _fresh_database(postgres_server_url) as url:
        yield url


@pytest.fixture(scope="session")
def shared_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of the PostgreSQL database that the session's tests use one after the other."""
    with _fresh_database(postgres_server_url) as url:
        upgrade(url)
        yield url


@pytest.fixture
def postgres_url(shared_postgres_url: str) -> str:
    """URL of a PostgreSQL database with this program's tables, all empty."""
    tables = ", ".join(table.name for table in Base.metadata.sorted_tables)
    _administer(shared_postgres_url, f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
    return shared_postgres_url


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Database]:
    """A fresh PostgreSQL database with this program's tables."""
    database = Database(postgres_url)
    yield database
    database.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def any_database(request: pytest.FixtureRequest) -> Database:
    """The test runs twice: on SQLite and on PostgreSQL."""
    database: Database = request.getfixturevalue("database" if request.param == "sqlite" else "postgres")
    return database


@contextmanager
def _fresh_database(server_url: str) -> Iterator[str]:
    name = f"ampboard_test_{os.getpid()}_{next(_numbers)}"
    _administer(server_url, f"CREATE DATABASE {name}")
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    _administer(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _administer(server_url: str, statement: str) -> None:
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("SET lock_timeout = '20s'"))  # a leaked transaction shows as an error here
        connection.execute(text(statement))
    engine.dispose()
