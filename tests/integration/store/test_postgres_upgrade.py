"""The migrations on a real PostgreSQL server."""

from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from old_database import check_upgraded, make_old_database

from server.db.engine import Database
from server.db.errors import SchemaError
from server.db.tables import Base
from server.db.upgrade import check, expected_version, open_database, upgrade
from server.settings import Settings

pytestmark = pytest.mark.postgres


def test_migrations_make_exactly_the_tables(postgres: Database) -> None:
    with postgres.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_a_server_is_upgraded_by_command_only(empty_postgres_url: str) -> None:
    settings = Settings(database_url=empty_postgres_url)
    with pytest.raises(SchemaError, match=r"is empty.*run `ampboard db upgrade`"):
        open_database(settings)
    upgrade(empty_postgres_url)
    database = open_database(settings)
    check(database)
    database.dispose()


def test_the_first_version_with_data_is_brought_up_to_date(empty_postgres_url: str) -> None:
    make_old_database(empty_postgres_url)
    upgrade(empty_postgres_url)
    database = Database(empty_postgres_url)
    check_upgraded(database)
    database.dispose()


def test_several_upgrades_at_once_wait_for_each_other(empty_postgres_url: str) -> None:
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(upgrade(empty_postgres_url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected_version()] * 4
