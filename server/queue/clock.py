"""One clock for leases: the store's, so that hosts whose clocks differ agree on what has expired."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import text
from sqlalchemy.orm import Session


def store_now(session: Session) -> datetime:
    """The time of the database server; of this host on SQLite, whose users share it."""
    if session.get_bind().dialect.name == "postgresql":
        now = session.execute(text("SELECT clock_timestamp()")).scalar_one()
        assert isinstance(now, datetime)
        return now.astimezone(UTC)
    return datetime.now(UTC)
