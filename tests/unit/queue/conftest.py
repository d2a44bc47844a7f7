"""A queue in a database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from queue_rows import Queue

from server.db.engine import Database


@pytest.fixture
def queue(database: Database) -> Iterator[Queue]:
    """A fresh queue in one open transaction."""
    with database.write() as session:
        yield Queue(session)
