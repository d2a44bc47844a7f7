from __future__ import annotations

from pathlib import Path

import pytest
from team import Team

from server.db.engine import Database


@pytest.fixture
def team(database: Database, tmp_path: Path) -> Team:
    """An application on SQLite with a viewer, a submitter, an admin and a workload."""
    team = Team(database, tmp_path)
    team.add_workload()
    return team
