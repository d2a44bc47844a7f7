"""Copies of a database: a consistent one while it is in use, one put back; and a file as small as its content."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import make_url

from server.db.engine import Database
from server.db.errors import StoreError, StoreUnavailable

PG_DUMP = "pg_dump --format=custom --file=ampboard.dump DATABASE"
PG_RESTORE = "pg_restore --clean --if-exists --dbname=DATABASE ampboard.dump"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes of a database before and after."""

    before: int
    after: int


def sqlite_path(url: str) -> Path:
    """The file of a SQLite URL. Raises `StoreError` for a database server, which has tools of its own."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise StoreError(
            f"a database server is backed up with its own tools, also while it is in use: {PG_DUMP}; "
            f"put back: {PG_RESTORE}"
        )
    return Path(parsed.database)


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy a live SQLite file, as it is at one moment; ``target`` appears whole or not at all.

    Raises `sqlite3.Error` and `OSError`.
    """
    partial = target.with_name(target.name + ".partial")
    try:
        with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(partial)) as copy:
            live.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE").close()
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def back_up(url: str, target: Path) -> int:
    """Back the database up into ``target`` while it is in use, check the copy, and return its size in bytes.

    Raises:
        StoreError: for a database server, and for a target that is there.
        StoreUnavailable: when it cannot be copied; no half of a copy is left.
    """
    source = sqlite_path(url)
    if not source.exists():
        raise StoreError(f"there is no database at {source}: nothing was copied")
    if target.exists():
        raise StoreError(f"{target} is there already: name a file that is not, so that no older backup is lost")
    try:
        copy_sqlite(source, target)
        check_file(target)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(f"the database could not be copied to {target} ({error}): free some space") from error
    return target.stat().st_size


def check_file(path: Path) -> str:
    """The version of a database file that is whole. Raises `StoreError` for any other file."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise StoreError(f"{path} is damaged: {verdict}")
            return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])
    except (sqlite3.Error, TypeError) as error:
        raise StoreError(
            f"{path} is no ampboard database ({error}): name a file that 'ampboard backup' wrote"
        ) from error


def restore(url: str, source: Path) -> Path | None:
    """Put a backup in the database's place and return where the former one went, None when there was none.

    Nothing may be using the database. Whatever happens in between, the database's file is the former or the new one.

    Raises:
        StoreError: for a file that is no backup.
        StoreUnavailable: when there is no room; the database stays as it was.
    """
    target = sqlite_path(url)
    check_file(source)
    former: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            former = _free_name(target)
            copy_sqlite(target, former)
            with closing(sqlite3.connect(target)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
                connection.execute("PRAGMA journal_mode=DELETE").close()  # no log may outlive the file it belongs to
        copy_sqlite(source, target)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(
            f"{source} could not be put in the place of {target} ({error}): stop whatever uses it, and free some space"
        ) from error
    return former


def vacuum(url: str) -> Sizes:
    """Give the space of deleted rows back, and refresh the planner's statistics.

    SQLite writes its file anew, for which it needs as much room again for a moment; readers and writers wait meanwhile.
    PostgreSQL rewrites the tables (VACUUM FULL), which locks each for a while.
    """
    database = Database(url)
    try:
        before = _num_bytes(database)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if database.is_sqlite:
                raw = connection.connection.dbapi_connection
                assert raw is not None, "the connection is open"
                for statement in ("VACUUM", "ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"):
                    raw.execute(statement).close()
            else:
                connection.execute(text("VACUUM (FULL, ANALYZE)"))
        return Sizes(before=before, after=_num_bytes(database))
    except sqlite3.Error as error:
        raise StoreUnavailable(
            f"the database could not be vacuumed now ({error}): free some space, or stop its writers"
        ) from error
    finally:
        database.dispose()


def _num_bytes(database: Database) -> int:
    if database.is_sqlite:
        path = sqlite_path(database.url)
        return sum(part.stat().st_size for suffix in ("", "-wal") if (part := Path(f"{path}{suffix}")).exists())
    with database.read() as session:
        return int(session.scalar(text("SELECT pg_database_size(current_database())")) or 0)


def _free_name(target: Path) -> Path:
    number = 1
    while (path := target.with_name(f"{target.stem}.before-restore-{number}{target.suffix}")).exists():
        number += 1
    return path
