"""kill -9 in the middle of a write, fold, migration, backup or delete; a full disk: nothing lost, nothing doubled."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from histories import add_experiment, add_run, change_run, segment
from old_database import check_upgraded, make_old_database
from sqlalchemy import func, select, text

from amp_core import events
from server.db.backup import check_file, vacuum
from server.db.engine import Database
from server.db.errors import StoreFull
from server.db.tables import Base, Chunk, Fold, Run, Segment
from server.db.upgrade import open_database
from server.metrics import fold as fold_module
from server.metrics.fold import fold
from server.metrics.read import series_names, window
from server.metrics.write import store_frames
from server.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
NUM_SEGMENTS, STEPS = 400, 10

WRITER = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from test_store_faults import frame_of
from server.db.engine import Database
from server.metrics import fold
from server.metrics.write import store_frames
fold.FOLD_SEGMENTS, fold.CHUNK_POINTS = 7, 64
database = Database({url!r})
for number in range({first}, {last}):
    with database.write() as session:
        store_frames(session, {run}, 1, [frame_of(number)])
    print(number, flush=True)
"""
UPGRADE = """
import sys
sys.path[:0] = [{root!r}]
from server.db.upgrade import upgrade
print("go", flush=True)
upgrade({url!r})
"""
BACKUP = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}]
from server.db.backup import back_up
print("go", flush=True)
back_up({url!r}, Path({target!r}))
"""
DELETE = """
import sys
sys.path[:0] = [{root!r}]
from sqlalchemy import text
from server.db.engine import Database
database = Database({url!r})
print("go", flush=True)
with database.write() as session:
    session.execute(text("DELETE FROM experiments WHERE id = {experiment}"))
"""


def frame_of(number: int) -> events.Frame:
    """The same segment whenever it is asked for."""
    rng = random.Random(number)
    steps = range((number - 1) * STEPS, number * STEPS)
    series = {f"s{n}": (list(steps), [rng.gauss(0, 1) for _ in steps]) for n in range(3)}
    return segment(number, series)


def run_and_kill(script: str, after_s: float, **values: object) -> list[str]:
    """Run a script, kill it some time after its first line, and return the lines it wrote."""
    tests = str(Path(__file__).parent)
    code = script.format(root=str(ROOT), tests=tests, **values)
    environment = {"PYTHONPATH": f"{ROOT / 'tests'}:{tests}", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first, "the script failed before it began"
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    lines = [first, *process.stdout.readlines()]
    process.wait()
    process.stdout.close()
    return [line.strip() for line in lines]


def everything(database: Database, run_id: int) -> str:
    with database.read() as session:
        shown = [window(session, run_id, f"s{n}", max_points=100_000).to_json() | {"run_id": 0} for n in range(3)]
        return repr((series_names(session, run_id), shown))


def test_kill_in_the_middle_of_writes_and_folds(database: Database) -> None:
    run_id, plain = add_run(database), add_run(database)
    told = 0
    for round_ in range(6):
        lines = run_and_kill(
            WRITER,
            random.Random(round_).uniform(0.02, 0.5),
            url=database.url,
            run=run_id,
            first=1,
            last=NUM_SEGMENTS + 1,
        )
        told = max(told, *(int(line) for line in lines if line.isdecimal()))
        with database.read() as session:
            gathered = session.get_one(Fold, (run_id, 1))
            waiting = session.scalars(select(Segment.sequence).where(Segment.run_id == run_id)).all()
            assert gathered.num_segments == len(waiting)
            assert all(sequence > gathered.sequence for sequence in waiting)
            newest = max([gathered.sequence, *waiting])
            assert newest >= told, "what was told to be stored is there"
            assert window(session, run_id, "s0", max_points=100_000).num_points == newest * STEPS
    for start in range(1, NUM_SEGMENTS + 1, 40):  # chunks are larger in this process: another version might do so, too
        with database.write() as session:
            frames = [frame_of(number) for number in range(start, start + 40)]
            store_frames(session, run_id, 1, frames)
            store_frames(session, plain, 1, frames)
    assert everything(database, run_id) == everything(database, plain)


def test_kill_in_the_middle_of_a_migration(tmp_path: Path) -> None:
    for round_ in range(3):
        settings = Settings(data_dir=tmp_path / str(round_))
        settings.data_dir.mkdir()
        make_old_database(settings.sqlalchemy_url)
        run_and_kill(UPGRADE, 0.05 * round_, url=settings.sqlalchemy_url)
        with closing(sqlite3.connect(settings.data_dir / "ampboard.sqlite3")) as connection:
            version = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert ("chunks" in tables) == (version != "0001"), "a migration happens wholly or not at all"
        database = open_database(settings)
        check_upgraded(database)
        database.dispose()


def big_experiment(database: Database, num_runs: int = 30) -> int:
    experiment_id = add_experiment(database, state="ended")
    for _ in range(num_runs):
        run_id = add_run(database, experiment_id)
        with database.write() as session:
            store_frames(session, run_id, 1, [frame_of(number) for number in range(1, 40)])
            fold(session, run_id, 1)
        change_run(database, run_id, state="completed")
    return experiment_id


def test_kill_in_the_middle_of_a_backup(database: Database, tmp_path: Path) -> None:
    big_experiment(database)
    for round_ in range(4):
        target = tmp_path / f"copy{round_}.sqlite3"
        run_and_kill(BACKUP, 0.01 * round_, url=database.url, target=str(target))
        if target.exists():
            check_file(target)
    with database.read() as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"


def test_kill_in_the_middle_of_a_delete(database: Database) -> None:
    experiment_id = big_experiment(database)
    tables = [table for table in Base.metadata.sorted_tables if "run_id" in table.columns]

    def rows() -> list[int]:
        with database.read() as session:
            return [session.scalar(select(func.count()).select_from(table)) or 0 for table in tables]

    before = rows()
    for round_ in range(6):
        run_and_kill(DELETE, 0.004 * round_, url=database.url, experiment=experiment_id)
        with database.read() as session:
            num_runs = session.scalar(select(func.count()).select_from(Run))
        assert (num_runs, rows()) in ((30, before), (0, [0] * len(tables)))
        if num_runs == 0:
            break
    with database.read() as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"


def test_a_disk_that_fills_up_during_a_fold_loses_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "FOLD_SEGMENTS", 60)
    run_id, plain = add_run(database), add_run(database)
    frames = [frame_of(number) for number in range(1, 81)]
    with database.write() as session:
        store_frames(session, plain, 1, frames)
    with database.write() as session:
        store_frames(session, run_id, 1, frames[:50])

    def store_on_a_full_disk() -> None:
        with database.write() as session:
            pages = session.scalar(text("PRAGMA page_count")) or 0
            session.execute(text(f"PRAGMA max_page_count = {pages + 1}"))
            store_frames(session, run_id, 1, frames[50:])

    with pytest.raises(StoreFull):
        store_on_a_full_disk()
    database.dispose()  # the limit belongs to the connection: there is room again
    with database.read() as session:
        assert session.get_one(Fold, (run_id, 1)).num_segments == 50
        assert session.scalar(select(func.count()).where(Chunk.run_id == run_id)) == 0
        assert window(session, run_id, "s0", max_points=100_000).num_points == 50 * STEPS
    with database.write() as session:
        store_frames(session, run_id, 1, frames)
    assert everything(database, run_id) == everything(database, plain)


def test_deleting_half_of_a_thousand_runs_and_vacuuming_halves_the_file(database: Database) -> None:
    experiments = [add_experiment(database, state="ended") for _ in range(2)]
    for number in range(1000):
        run_id = add_run(database, experiments[number % 2], state="running")
        with database.write() as session:
            store_frames(session, run_id, 1, [frame_of(number * 10 + part) for part in range(1, 6)])
            fold(session, run_id, 1)
    vacuum(database.url)
    path = Path(database.url.removeprefix("sqlite:///"))
    full = path.stat().st_size
    with database.write() as session:
        session.execute(text("DELETE FROM experiments WHERE id = :id"), {"id": experiments[0]})
    vacuum(database.url)
    assert 0.45 < path.stat().st_size / full < 0.55
