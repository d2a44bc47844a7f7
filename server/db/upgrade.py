"""Bring a database to this program's tables, or say what is wrong with it.

``python -m server.db.upgrade`` upgrades the database of the settings. The embedded SQLite file upgrades itself when
the program starts, after a copy of it was put beside it; a database server is upgraded only when told to.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.engine import make_url

from server.db.backup import copy_sqlite
from server.db.engine import Database
from server.db.errors import SchemaError, StoreError, StoreUnavailable
from server.settings import Settings

MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"  # beside server/, in a checkout and when installed
COMMAND = "ampboard db upgrade"
_LOCK = 0x616D70  # any number, the same for every ampboard: key of the PostgreSQL advisory lock


def expected_version() -> str:
    """The revision of this program's tables."""
    head = _scripts().get_current_head()
    assert head is not None, "migrations/versions has a single head"
    return head


def found_version(connection: Connection) -> str | None:
    """The revision of the tables that are there, or None for an empty database.

    Raises:
        SchemaError: for tables without a revision, which ampboard did not make.
    """
    version = MigrationContext.configure(connection).get_current_revision()
    if version is None:
        tables = [name for name in inspect(connection).get_table_names() if name != "alembic_version"]
        if tables:
            raise SchemaError(
                f"the database holds tables ({', '.join(sorted(tables)[:5])}) but no ampboard version: "
                "give AMPBOARD_DATABASE_URL an empty database"
            )
    return version


def check(database: Database) -> None:
    """Return when the tables are this program's.

    Raises:
        SchemaError: naming the version found, the one expected, and the command that mends it.
        StoreUnavailable: when the database cannot be asked.
    """
    with database.read() as session:
        _compare(found_version(session.connection()))


def upgrade(database_url: str) -> str:
    """Create or upgrade the tables in one transaction and return their version; two at once wait for each other.

    Raises:
        SchemaError: when the database is newer than this program, or is not ampboard's.
    """
    database = Database(database_url)
    if database.is_sqlite:
        event.listen(database.engine, "connect", _allow_rebuilding_tables)
    try:
        with database.write() as session:
            connection = session.connection()
            if not database.is_sqlite:
                session.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
            return _upgrade_connection(connection)
    finally:
        database.dispose()


def open_database(settings: Settings) -> Database:
    """The database of the settings, ready for use: the embedded one is created or upgraded first.

    Before its tables are changed, the embedded file is copied to ``ampboard.before-VERSION.sqlite3`` beside it.

    Raises:
        SchemaError: when its tables are not of this version and must be upgraded by command, or are newer.
        StoreUnavailable: when it cannot be reached.
    """
    database = Database(settings.sqlalchemy_url)
    try:
        if settings.embedded_database:
            _upgrade_embedded(database)
        check(database)
    except BaseException:
        database.dispose()
        raise
    return database


def _upgrade_embedded(database: Database) -> None:
    with database.read() as session:
        version = found_version(session.connection())
    if version == expected_version():
        return
    if version is not None:
        _refuse_unknown(version)
        back_up(database.url, version)
    upgrade(database.url)


def back_up(sqlite_url: str, version: str) -> Path:
    """Copy a live SQLite file to ``NAME.before-VERSION.sqlite3`` beside it, and return the copy's path.

    Raises:
        StoreUnavailable: when there is no room for the copy; no half of one is left.
    """
    path = Path(make_url(sqlite_url).database or "")
    copy = path.with_name(f"{path.stem}.before-{version}.sqlite3")
    try:
        copy_sqlite(path, copy)
    except (sqlite3.Error, OSError) as error:
        raise StoreUnavailable(
            f"the database could not be copied to {copy} before its upgrade ({error}): free some space and try again; "
            "nothing was changed"
        ) from error
    return copy


def _upgrade_connection(connection: Connection) -> str:
    version, expected = found_version(connection), expected_version()
    if version == expected:
        return expected
    _refuse_unknown(version)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.dialect.name == "sqlite":
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        assert not broken, f"the migration left dangling references: {broken[:3]}"
    return expected


def _compare(version: str | None) -> None:
    expected = expected_version()
    if version == expected:
        return
    if version is None:
        raise SchemaError(f"the database is empty, this program needs version {expected}: run `{COMMAND}`")
    _refuse_unknown(version)
    raise SchemaError(
        f"the database has version {version}, this program needs {expected}: stop server and workers, back it up, "
        f"and run `{COMMAND}`"
    )


def _refuse_unknown(version: str | None) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if version is not None and version not in known:
        raise SchemaError(
            f"the database has version {version}, this program knows up to {expected_version()}: a newer ampboard "
            "wrote it; install that one, or restore the copy made before the upgrade"
        )


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(MIGRATIONS))


def _allow_rebuilding_tables(connection: sqlite3.Connection, _record: object) -> None:
    """Alembic changes a SQLite table by copying and dropping it; with foreign keys on, the drop would cascade."""
    connection.execute("PRAGMA foreign_keys=OFF").close()


def main() -> int:
    """Upgrade the database of the settings; the exit code says whether it worked."""
    settings = Settings()
    try:
        if settings.embedded_database:
            open_database(settings).dispose()
        else:
            upgrade(settings.sqlalchemy_url)
    except StoreError as error:
        sys.stderr.write(f"ampboard: {error}\n")
        return 1
    sys.stdout.write(f"the database has version {expected_version()}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
