"""The store's errors.

StoreError
├── StoreUnavailable      the database cannot be reached, is locked or gave way: try again later
│   └── StoreFull         no room left for the write: free some, then try again
├── SchemaError           tables of another version than this program's
└── LeaseLost             whoever writes for a run no longer holds it
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line knows these errors without loading SQLAlchemy
    from sqlalchemy.exc import DBAPIError


class StoreError(Exception):
    """Base of everything the store raises on purpose."""


class StoreUnavailable(StoreError):
    """The transaction did not happen and may be tried again; the message says why."""


class StoreFull(StoreUnavailable):
    """The transaction did not happen because the database has no room left."""


class SchemaError(StoreError):
    """The tables are not of this program's version: names the one found, the one expected, and the command."""


class LeaseLost(StoreError):
    """The run is not running this attempt any more; nothing was written, and nothing more may be."""


_SQLITE_FULL = {sqlite3.SQLITE_FULL}
_SQLITE_AWAY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PROTOCOL,
}
_POSTGRES_AWAY = ("08", "53", "57P", "40001", "40P01", "55P03", "58030")  # connection, resources, shutdown, conflicts


def translate(error: DBAPIError) -> StoreUnavailable | None:
    """The `StoreUnavailable` that a driver's error means, or None when it is a fault of the statement."""
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # extended codes carry the primary one in the low byte
        if code in _SQLITE_FULL:
            return StoreFull(f"the disk or the database is full ({cause}): free some space; nothing was written")
        if code in _SQLITE_AWAY:
            return StoreUnavailable(f"the database file cannot be used now ({cause}): check its folder and its disk")
        return None
    state: str | None = getattr(cause, "sqlstate", None)
    if state == "53100":
        return StoreFull(f"the database server's disk is full ({cause}): free some space; nothing was written")
    if error.connection_invalidated or (state is None and _is_connection_error(error)):
        return StoreUnavailable(f"the database server cannot be reached ({cause}): check that it runs")
    if state is not None and state.startswith(_POSTGRES_AWAY):
        return StoreUnavailable(f"the database server refused for now ({cause})")
    return None


def _is_connection_error(error: DBAPIError) -> bool:
    """psycopg gives a failed connection no SQLSTATE, only its class."""
    return type(error.orig).__name__ in {"OperationalError", "ConnectionTimeout", "InterfaceError"}
