"""Workload folders are described in children, and the store's list follows the files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from queue_rows import Queue
from sqlalchemy import select
from worker_site import TINY

from server.db.engine import Database
from server.db.tables import Workload
from server.settings import Settings
from worker import workload_files
from worker.describe import Described, describe_files
from worker.scan import Scanner
from worker.workload_rows import record_file


@pytest.fixture
def scanner(any_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scanner:
    monkeypatch.setattr(workload_files, "BUNDLED", tmp_path / "bundled")
    return Scanner(any_database, Settings(data_dir=tmp_path / "data", workloads=[tmp_path]))


def listed(database: Database) -> dict[str, str | None]:
    """The error of the current version of each name."""
    with database.read() as session:
        return {row.name: row.error for row in session.scalars(select(Workload).order_by(Workload.seen_at))}


def test_the_list_follows_the_files(scanner: Scanner, any_database: Database, tmp_path: Path) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name  # a Workload that needs it\n")
    (tmp_path / "dies.py").write_text("import os  # and no Workload comes of it\nos._exit(7)\n")
    (tmp_path / "_private.py").write_text("raise SystemExit")
    assert scanner.scan() == 3
    names = listed(any_database)
    assert names["tiny"] is None
    assert "nothing_of_this_name" in (names["broken"] or "")
    assert "exit code 7" in (names["dies"] or "")
    assert set(names) == {"tiny", "broken", "dies"}
    assert scanner.scan() == 0
    (tmp_path / "broken.py").write_text(TINY.replace("class Tiny", "class Mended"))
    (tmp_path / "dies.py").unlink()
    assert scanner.scan() == 1
    assert listed(any_database) == {"tiny": None, "mended": None}


def test_each_version_keeps_its_source(scanner: Scanner, any_database: Database, tmp_path: Path) -> None:
    for text in (TINY, TINY + "# a second version\n"):
        (tmp_path / "tiny.py").write_text(text)
        scanner.scan()
    with any_database.read() as session:
        assert {row.source for row in session.scalars(select(Workload))} == {TINY, TINY + "# a second version\n"}


def test_a_restarted_worker_imports_only_what_it_does_not_know(
    scanner: Scanner, any_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.py").write_text(TINY)
    scanner.scan()
    (tmp_path / "other.py").write_text(TINY.replace("class Tiny", "class Other"))
    imported: list[Path] = []

    def describe(paths: list[Path]) -> list[Described]:
        imported.extend(paths)
        return describe_files(paths)

    monkeypatch.setattr("worker.scan.describe_files", describe)
    restarted = Scanner(any_database, Settings(data_dir=tmp_path / "data", workloads=[tmp_path]))
    assert restarted.scan() == 2
    assert imported == [tmp_path / "other.py"]
    assert listed(any_database) == {"tiny": None, "other": None}


def test_a_file_that_hangs_is_given_up_and_the_others_are_listed(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time  # before any Workload\ntime.sleep(600)\n")
    (hangs,) = describe_files([tmp_path / "hangs.py"], timeout_s=1)
    assert hangs.name == "hangs"
    assert "longer than 1 s" in (hangs.error or "")


def test_an_old_copy_does_not_take_the_place_of_a_newer_version(any_database: Database) -> None:
    now = datetime.now(UTC)
    path = Path("/w/a.py")

    def version(source_hash: str) -> list[Described]:
        return [Described(name="a", path=path, source_hash=source_hash, description={}, error=None)]

    def current() -> str:
        with any_database.read() as session:
            query = select(Workload.source_hash).where(Workload.name == "a").order_by(Workload.seen_at.desc()).limit(1)
            return session.scalars(query).one()

    for source_hash, modified_at, expected in [
        ("old", now - timedelta(hours=2), "old"),
        ("new", now - timedelta(hours=1), "new"),
        ("old", now - timedelta(hours=2), "new"),  # another host starts with its stale copy
        ("old", now + timedelta(seconds=60), "old"),  # the file was put back on purpose
    ]:
        with any_database.write() as session:
            record_file(session, path, version(source_hash), modified_at)
        assert current() == expected


def test_a_used_version_is_kept_and_says_that_its_file_is_gone(any_database: Database) -> None:
    with any_database.write() as session:
        Queue(session).experiment()
    with any_database.write() as session:
        record_file(session, Path("w.py"), [], datetime.now(UTC))
    assert "The file w.py was removed" in (listed(any_database)["w"] or "")
