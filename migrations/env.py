"""Alembic's entry: upgrades the connection it is given, or the database of the settings when run by hand.

`server.db.upgrade` passes a connection that already holds the lock; ``alembic revision --autogenerate -m "…"`` in a
checkout opens one itself.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from server.db.engine import Database
from server.db.tables import Base, UtcDateTime
from server.settings import Settings


def render_item(kind: str, item: object, _context: object) -> str | bool:
    """Write the columns of `UtcDateTime` without importing the server, which may have moved on."""
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    return False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_item=render_item,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,  # SQLite and PostgreSQL both roll tables back; the caller's transaction decides
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = Database(Settings().sqlalchemy_url)
    with database.engine.connect() as connection:
        run(connection)
    database.dispose()
