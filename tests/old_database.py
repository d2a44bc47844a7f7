"""A database as version 0001 left it, with a run of a few segments in it."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
from alembic import command
from alembic.config import Config
from sqlalchemy import text

from server.db.engine import Database
from server.db.upgrade import MIGRATIONS
from server.metrics.codec import Points, pack

AT = "2026-01-01 00:00:00.000000+00:00"
NUM_SEGMENTS, STEPS = 30, 10


def make_old_database(url: str) -> None:
    """Create version 0001 and fill it with plain SQL: the tables of today may be others."""
    database = Database(url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with database.write() as session:
        config.attributes["connection"] = session.connection()
        command.upgrade(config, "0001")
        at = AT.removesuffix("+00:00") if database.is_sqlite else AT

        def insert(table: str, **row: Any) -> None:
            names = ", ".join(row)
            session.execute(
                text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in row)})"), row
            )

        insert("users", id=1, name="ann", role="admin", created_at=at)
        insert("projects", id=1, name="default", created_at=at)
        insert(
            "workloads", id=1, name="w", source_hash="h", path="w.py", description="{}", first_seen_at=at, seen_at=at
        )
        insert(
            "experiments", id=1, project_id=1, workload_id=1, owner_id=1, name="old", state="running", plan="{}",
            tags="[]", note="", created_at=at,
        )  # fmt: skip
        params = {"lr": 0.5, "norm": "batch", "augment": True, "width": 32, "nothing": None}
        config_json = json.dumps({"device": "cpu", "workload": {"name": "w", "path": "w.py", "params": params}})
        insert(
            "runs", id=1, experiment_id=1, kind="train", role="baseline", recipe_name="32-true", recipe="{}", seed=0,
            steps=300, config=config_json, state="running", priority=0,
            attempt=1, max_attempts=2, step=0, created_at=at,
        )  # fmt: skip
        for number in range(NUM_SEGMENTS):
            steps = np.arange(number * STEPS, (number + 1) * STEPS)
            points = Points(steps=steps, values=steps / 2, times=steps * 1.0)
            insert(
                "segments", run_id=1, attempt=1, sequence=number + 1, num_points=STEPS, min_step=int(steps[0]),
                max_step=int(steps[-1]), payload=pack({"train/loss": points}),
            )  # fmt: skip
        last = NUM_SEGMENTS * STEPS - 1
        insert(
            "series", run_id=1, attempt=1, name="train/loss", num_points=last + 1, first_step=0, last_step=last,
            last_value=struct.pack("<d", last / 2), finite_last=last / 2, finite_min=0.0, finite_max=last / 2,
            finite_sum=0.0, num_nan=0, num_pos_inf=0, num_neg_inf=0,
        )  # fmt: skip
    database.dispose()


def check_upgraded(database: Database) -> None:
    """What was there reads as before, the run goes on, and folding takes the old segments along."""
    from histories import segment
    from sqlalchemy import func, select

    from server.db.tables import Fold, RunParameter, Segment
    from server.metrics.fold import fold
    from server.metrics.read import window
    from server.metrics.write import store_frames

    with database.read() as session:
        gathered = session.get_one(Fold, (1, 1))
        assert (gathered.sequence, gathered.num_segments, gathered.num_points) == (
            0,
            NUM_SEGMENTS,
            NUM_SEGMENTS * STEPS,
        )
        found = {row.name: (row.text, row.number) for row in session.scalars(select(RunParameter))}
        assert found == {
            "lr": ("0.5", 0.5), "norm": ("batch", None), "augment": ("true", None), "width": ("32", 32.0),
            "nothing": ("null", None),
        }  # fmt: skip
        before = window(session, 1, "train/loss").to_json()
    assert before["steps"] == list(range(NUM_SEGMENTS * STEPS))
    with database.write() as session:
        assert store_frames(session, 1, 1, [segment(5, {"train/loss": ([1], [1.0])})]) == 0
        assert store_frames(session, 1, 1, [segment(31, {"train/loss": ([300], [7.0])})]) == 1
        assert fold(session, 1, 1) == NUM_SEGMENTS + 1
    with database.read() as session:
        after = window(session, 1, "train/loss").to_json()
        assert after["values"] == [*before["values"], 7.0]
        assert session.scalar(select(func.count()).select_from(Segment)) == 0
