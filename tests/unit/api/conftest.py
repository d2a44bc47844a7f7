from __future__ import annotations

from pathlib import Path

import pytest
from forking import KEPT, submit, work
from team import Team

from server.db.engine import Database


@pytest.fixture
def team(database: Database, tmp_path: Path) -> Team:
    """An application on SQLite with a viewer, a submitter, an admin and a workload."""
    team = Team(database, tmp_path)
    team.add_workload()
    return team


@pytest.fixture
def origin(team: Team) -> int:
    """The completed FP32 run of an experiment that kept two checkpoints."""
    team.add_worker()
    made = submit(team, **KEPT)
    run_id = made["runs"][0]["id"]
    assert made["runs"][0]["role"] == "baseline"
    work(team, run_id, kept=(40, 100))
    return run_id
