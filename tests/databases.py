"""Fixtures: databases for every test, SQLite always, PostgreSQL as a real server where one can be had."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_server import NoPostgresError, postgres_server
from sqlalchemy import create_engine, make_url, text

from server.db.engine import Database
from server.db.upgrade import upgrade

__all__ = [
    "any_database",
    "database",
    "empty_postgres_url",
    "postgres",
    "postgres_server_url",
    "postgres_template",
    "postgres_url",
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


@pytest.fixture(scope="session")
def postgres_template(postgres_server_url: str) -> Iterator[str]:
    """Name of a PostgreSQL database with this program's tables, copied for each test."""
    name = f"ampboard_template_{os.getpid()}"
    _administer(postgres_server_url, f"CREATE DATABASE {name}")
    upgrade(_named(postgres_server_url, name))
    yield name
    _administer(postgres_server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def empty_postgres_url(postgres_server_url: str) -> Iterator[str]:
    """URL of a fresh PostgreSQL database without tables."""
    yield from _fresh(postgres_server_url, "template1")


@pytest.fixture
def postgres_url(postgres_server_url: str, postgres_template: str) -> Iterator[str]:
    """URL of a fresh PostgreSQL database with this program's tables."""
    yield from _fresh(postgres_server_url, postgres_template)


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


def _fresh(server_url: str, template: str) -> Iterator[str]:
    name = f"ampboard_test_{os.getpid()}_{next(_numbers)}"
    _administer(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield _named(server_url, name)
    _administer(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _administer(server_url: str, statement: str) -> None:
    engine = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def _named(server_url: str, name: str) -> str:
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)
