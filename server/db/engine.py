"""The database: one engine, and two kinds of transaction.

`Database.read` is one consistent snapshot; `Database.write` commits on leaving. Both are short: no request, stream or
worker holds one while it waits for anything else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from server.db.deleted import StoreSession
from server.db.errors import StoreError, StoreUnavailable, translate
from server.db.turns import Turns

BUSY_TIMEOUT_MS = 10_000
JOURNAL_LIMIT_BYTES = 64 * 1024 * 1024
CACHE_KIB = 512  # of each of dozens of connections; the operating system keeps the pages for all of them
NETWORK = {  # libpq's own: how soon a silent network is noticed; the URL's query may say otherwise
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}


class Database:
    """The SQL store behind one SQLAlchemy URL; safe to share between threads, not between processes.

    SQLite runs in WAL mode: readers never wait, and a writer takes the write lock when it begins, so that a read
    followed by a write cannot fail halfway; of one process whoever waits longest is next. PostgreSQL readers are
    REPEATABLE READ, writers READ COMMITTED.

    Raises:
        StoreError: for a URL that is not one of SQLite or PostgreSQL.
        StoreUnavailable, StoreFull: from `read` and `write`, for faults that a later try may not meet again.
    """

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        self.url = parsed.render_as_string(hide_password=False)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.engine = _sqlite_engine(parsed) if self.is_sqlite else _server_engine(parsed)
        reading: dict[str, Any] = {"ampboard_write": False}
        if not self.is_sqlite:
            reading |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._readers = self.engine.execution_options(**reading)
        self._writers = self.engine.execution_options(ampboard_write=True)
        self._turns = Turns()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session on one snapshot; nothing it changes is kept."""
        with _translated(), StoreSession(self._readers, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose changes are committed on leaving, or rolled back when an exception leaves."""
        turn = self._turns.take(BUSY_TIMEOUT_MS / 1000) if self.is_sqlite else nullcontext()
        with _translated(), turn, StoreSession(self._writers, expire_on_commit=False) as session, session.begin():
            if self.is_sqlite:
                session.connection()  # takes the write lock now, before the first read of the block
            yield session

    def dispose(self) -> None:
        """Close every pooled connection."""
        self.engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        meaning = translate(error)
        if meaning is None:
            raise
        raise meaning from error
    except PoolTimeout as error:
        raise StoreUnavailable(f"every database connection is in use ({error.args[0]}): try again") from error


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        # The text may hold a password, so it is not repeated.
        raise StoreError(
            "AMPBOARD_DATABASE_URL is no URL: write postgresql+psycopg://user:password@host/name"
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise StoreError(
            f"AMPBOARD_DATABASE_URL begins with {parsed.drivername}://, which is not supported: use "
            "postgresql+psycopg://…, or leave it unset for a SQLite file"
        )
    return parsed


def _server_engine(url: URL) -> Engine:
    network = {name: value for name, value in NETWORK.items() if name not in url.query}
    return create_engine(url, connect_args=network, pool_pre_ping=True, pool_size=10, max_overflow=10, pool_timeout=15)


def _sqlite_engine(url: URL) -> Engine:
    if url.database and url.database != ":memory:":
        folder = Path(url.database).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailable(
                f"the folder {folder} of the database cannot be made ({error.strerror}): "
                "choose another AMPBOARD_DATA_DIR"
            ) from error
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000}, pool_size=16, max_overflow=48)
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # this module begins transactions, not the driver
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        f"journal_size_limit={JOURNAL_LIMIT_BYTES}",
        f"cache_size=-{CACHE_KIB}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("ampboard_write", True)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
