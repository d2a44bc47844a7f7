"""Databases of every age: empty, ours, older, newer, somebody else's."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from old_database import check_upgraded, make_old_database
from sqlalchemy import inspect, text

from server.db import upgrade as upgrade_module
from server.db.engine import Database
from server.db.errors import SchemaError, StoreUnavailable
from server.db.tables import Base
from server.db.upgrade import back_up, check, expected_version, open_database, upgrade
from server.settings import Settings


def make_version(url: str, version: str) -> None:
    database = Database(url)
    with database.write() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
    database.dispose()


def test_migrations_make_exactly_the_tables(database: Database) -> None:
    with database.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []


def test_upgrading_again_changes_nothing(sqlite_url: str) -> None:
    assert upgrade(sqlite_url) == expected_version() == upgrade(sqlite_url)


def test_downgrading_leaves_no_table(sqlite_url: str) -> None:
    from alembic import command
    from alembic.config import Config

    database = Database(sqlite_url)
    config = Config()
    config.set_main_option("script_location", str(upgrade_module.MIGRATIONS))
    with database.write() as session:
        config.attributes["connection"] = session.connection()
        command.downgrade(config, "base")
    with database.read() as session:
        assert inspect(session.connection()).get_table_names() == ["alembic_version"]
    database.dispose()


def test_several_processes_upgrading_at_once_wait_for_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.sqlite3'}"
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(upgrade(url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected_version()] * 4


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0000", "version 0000, this program knows up to .*: a newer ampboard wrote it"),
        (None, "the database is empty, this program needs version .*: run `ampboard db upgrade`"),
    ],
)
def test_check_names_what_was_found_and_the_remedy(sqlite_url: str, version: str | None, message: str) -> None:
    if version is None:
        path = Path(sqlite_url.removeprefix("sqlite:///"))
        path.unlink()
    else:
        make_version(sqlite_url, version)
    database = Database(sqlite_url)
    with pytest.raises(SchemaError, match=message):
        check(database)
    database.dispose()


def test_an_older_database_is_refused_with_the_command(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected_version()
    monkeypatch.setattr(upgrade_module, "expected_version", lambda: "9999")
    database = Database(sqlite_url)
    with pytest.raises(SchemaError, match=rf"version {found}, this program needs 9999: .*`ampboard db upgrade`"):
        check(database)
    database.dispose()


def test_a_newer_database_is_left_alone(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    open_database(settings).dispose()
    make_version(settings.sqlalchemy_url, "7777_from_the_future")
    before = (tmp_path / "ampboard.sqlite3").read_bytes()
    with pytest.raises(SchemaError, match=r"7777_from_the_future.*a newer ampboard wrote it"):
        open_database(settings)
    with pytest.raises(SchemaError, match="7777_from_the_future"):
        upgrade(settings.sqlalchemy_url)
    assert (tmp_path / "ampboard.sqlite3").read_bytes() == before
    assert not list(tmp_path.glob("*before*"))


def test_tables_of_another_program_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE invoices (id INTEGER)")
    with pytest.raises(SchemaError, match=r"holds tables \(invoices\) but no ampboard version"):
        upgrade(f"sqlite:///{path}")


def test_the_embedded_database_upgrades_itself_after_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    database = open_database(settings)
    with database.write() as session:
        session.execute(text("INSERT INTO projects (name, created_at) VALUES ('kept', '2026-01-01 00:00:00.000000')"))
    database.dispose()
    migrations = tmp_path / "migrations"
    copy_migrations(migrations)
    before = expected_version()
    (migrations / "versions" / "9999_next.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision, down_revision = 'next', '{before}'\n"
        "branch_labels = depends_on = None\n"
        "def upgrade():\n"
        "    with op.batch_alter_table('users') as table:\n"
        "        table.add_column(sa.Column('motto', sa.Text()))\n"
        "def downgrade():\n    pass\n"
    )
    monkeypatch.setattr(upgrade_module, "MIGRATIONS", migrations)
    database = open_database(settings)
    with database.read() as session:
        assert "motto" in {column["name"] for column in inspect(session.connection()).get_columns("users")}
        assert session.scalar(text("SELECT name FROM projects")) == "kept"
    database.dispose()
    copy = tmp_path / f"ampboard.before-{before}.sqlite3"
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(before,)]
        assert connection.execute("SELECT name FROM projects").fetchall() == [("kept",)]


def test_the_first_version_with_data_is_brought_up_to_date(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    make_old_database(settings.sqlalchemy_url)
    database = open_database(settings)
    check_upgraded(database)
    database.dispose()
    assert (tmp_path / "ampboard.before-0001.sqlite3").exists()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    open_database(settings).dispose()
    migrations = tmp_path / "migrations"
    copy_migrations(migrations)
    (migrations / "versions" / "9999_broken.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision, down_revision = 'broken', '{expected_version()}'\n"
        "branch_labels = depends_on = None\n"
        "def upgrade():\n"
        "    op.add_column('users', sa.Column('half', sa.Text()))\n"
        "    raise RuntimeError('halfway')\n"
        "def downgrade():\n    pass\n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(upgrade_module, "MIGRATIONS", migrations)
        with pytest.raises(RuntimeError, match="halfway"):
            open_database(settings)
    database = open_database(settings)
    with database.read() as session:
        assert "half" not in {column["name"] for column in inspect(session.connection()).get_columns("users")}
    database.dispose()


def test_a_backup_is_whole_while_the_database_is_in_use(database: Database) -> None:
    with database.write() as session:
        session.execute(text("INSERT INTO projects (name, created_at) VALUES ('a', '2026-01-01 00:00:00.000000')"))
    with database.read() as reader:
        reader.execute(text("SELECT 1"))
        copy = back_up(database.url, "x")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT name FROM projects").fetchall() == [("a",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_no_room_for_the_copy_changes_nothing(database: Database) -> None:
    target = Path(database.url.removeprefix("sqlite:///")).with_name("ampboard.before-x.sqlite3")
    target.mkdir()
    (target / "in the way").touch()
    with pytest.raises(StoreUnavailable, match=r"could not be copied to .*before its upgrade.*nothing was changed"):
        back_up(database.url, "x")
    assert not list(target.parent.glob("*.partial"))


def test_the_module_upgrades_the_database_of_the_settings(tmp_path: Path) -> None:
    environment = {**os.environ, "AMPBOARD_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "server.db.upgrade"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert expected_version() in result.stdout
    make_version(f"sqlite:///{tmp_path / 'data' / 'ampboard.sqlite3'}", "strange")
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr.startswith("ampboard: the database has version strange")
    assert "Traceback" not in result.stderr


def copy_migrations(target: Path) -> None:
    (target / "versions").mkdir(parents=True)
    for source in (upgrade_module.MIGRATIONS / "env.py", *(upgrade_module.MIGRATIONS / "versions").glob("*.py")):
        (target / source.relative_to(upgrade_module.MIGRATIONS)).write_text(source.read_text())
