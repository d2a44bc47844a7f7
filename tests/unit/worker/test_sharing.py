"""Sources written from the store's text, and checkpoints by way of a shared store."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from queue_rows import Queue
from sqlalchemy import update

from amp_core.script.sources import source_hash, source_text
from server.db.engine import Database
from server.db.tables import Workload
from server.queue.claim import ClaimedRun, claim
from worker.artifact_store import ArtifactStore, ArtifactsUnusable
from worker.fetched_sources import fetch_source
from worker.shared_checkpoints import CheckpointUploads, at_hand, drop_shared, shared_runs
from worker.workload_files import WorkloadMissing

SCRIPTED = """
class One(Scripted):
    script = "train.py"
    other: str = "x"
class Two(Scripted):
    script = "deep/other.py"
"""


def recorded(database: Database, source: str | None, digest: str) -> ClaimedRun:
    """A claimed run of a workload of which the store has this text under that hash."""
    with database.write() as session:
        Queue(session).experiment()
        session.execute(update(Workload).values(source=source, source_hash=digest))
        claimed = claim(session, 1, ["cpu"], 15)
    assert claimed is not None
    return claimed


@pytest.mark.parametrize("text", ["x = 1\n", "# ä\r\nx = 1", SCRIPTED])
def test_a_fetched_file_has_the_very_source(database: Database, tmp_path: Path, text: str) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    (home / "deep").mkdir(parents=True)
    (home / "w.py").write_bytes(text.encode())
    (home / "train.py").write_text("print(1)\n# ---- not a mark\n")
    (home / "deep" / "other.py").write_text("")
    digest = source_hash(home / "w.py")
    claimed = recorded(database, source_text(home / "w.py", 10_000), digest)
    path = fetch_source(database, claimed, away)
    assert source_hash(path) == digest
    assert path.read_bytes() == text.encode()
    path.write_text("changed")
    assert source_hash(fetch_source(database, claimed, away)) == digest, "what was changed here is written again"
    assert [found.name for found in (away / "fetched").iterdir()] == [digest]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "no worker has recorded"),
        ("y = 2\n", "does not give the source"),
        ('class A:\n    script = "../../evil.py"\n\n# ---- evil.py ----\nboo', "outside of its own folder"),
    ],
)
def test_other_text_is_refused_and_leaves_nothing(
    database: Database, tmp_path: Path, source: str | None, message: str
) -> None:
    claimed = recorded(database, source, hashlib.sha256(b"x = 1\n").hexdigest())
    with pytest.raises(WorkloadMissing, match=message):
        fetch_source(database, claimed, tmp_path / "data")
    assert not [path for path in tmp_path.rglob("*.py") if path.is_file()]


def test_a_source_hash_that_is_a_path_leads_nowhere(database: Database, tmp_path: Path) -> None:
    claimed = replace(recorded(database, "x = 1\n", "0" * 64), workload_name="../../out")
    with pytest.raises(WorkloadMissing):
        fetch_source(database, claimed, tmp_path / "deep" / "data")
    assert not list(tmp_path.rglob("*.py"))


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """A folder, and a store that knows no folders, as S3."""
    return ArtifactStore(str(tmp_path / "shared") if request.param == "folder" else f"memory://{tmp_path.name}")


def test_the_newest_checkpoints_are_shared_and_fetched(store: ArtifactStore, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    paths = [here / f"step-{number}.pt" for number in range(5)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%d" % number * 10)
    for offered in (paths[:3], paths[3:]):  # two attempts
        uploads = CheckpointUploads(store, 7, max_bytes=100)
        for path in offered:
            uploads.offer(path)
        uploads.finish(10)
    known = tuple(str(path) for path in reversed(paths))
    assert at_hand(known, here, 7, store)[0] == str(paths[4])
    for path in paths:
        path.unlink()
    found = at_hand(known, there, 7, store)
    assert Path(found[0]) == there / "step-4.pt"
    assert Path(found[0]).read_bytes() == b"4" * 10
    assert shared_runs(store) == [7]
    drop_shared(store, 7)
    assert shared_runs(store) == []
    assert at_hand(known, tmp_path / "third", 7, store) == known, "none is there any more"
    assert not (tmp_path / "third").exists()


def test_what_is_too_large_or_gone_is_not_shared_and_ends_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    large = tmp_path / "step-1.pt"
    large.write_bytes(b"0" * 101)
    uploads = CheckpointUploads(store, 8, max_bytes=100)
    uploads.offer(tmp_path / "gone.pt")
    uploads.offer(large)
    uploads.finish(10)
    assert shared_runs(store) == []
    nothing = CheckpointUploads(None, 8, max_bytes=100)
    nothing.offer(large)
    nothing.finish()


def test_an_address_without_its_package_says_what_to_install() -> None:
    with pytest.raises(ArtifactsUnusable, match="install the fsspec package"):
        ArtifactStore("nosuchprotocol://bucket")
