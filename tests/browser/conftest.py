"""One seeded dashboard and one Chromium for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dashboard import CHROMIUM, chromium, served, session_cookie, signed_in
from playwright.sync_api import Browser, BrowserContext
from seed import History, write_history
from seeded import TeamHistory, write_team_history

from server.db.engine import Database
from server.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Site:
    """A served database, and how to open it signed in."""

    base: str
    database: Database
    browser: Browser
    secret: str

    def open(self, *, dark: bool = False, width: int = 1440) -> BrowserContext:
        return signed_in(self.browser, self.base, self.secret, dark=dark, width=width)

    def open_as(self, name: str) -> BrowserContext:
        return signed_in(self.browser, self.base, session_cookie(self.database, name))


@dataclass(frozen=True, kw_only=True)
class Dashboard(Site):
    """A small history, which can grow."""

    history: History


@dataclass(frozen=True, kw_only=True)
class SeededServer(Site):
    """A team's history: 12 experiments, 300 runs. Tests that change it undo that."""

    history: TeamHistory


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not installed: apt-get install chromium")
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def dashboard(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("dashboard"), lease_s=60 * 86400, heartbeat_s=3)
    history = write_history(settings)
    with served(settings, history.database) as base:
        secret = session_cookie(history.database)
        yield Dashboard(base=base, database=history.database, history=history, browser=browser, secret=secret)


@pytest.fixture(scope="session")
def seeded_server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeededServer]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("seeded"), lease_s=60 * 86400, heartbeat_s=3)
    history = write_team_history(settings)
    with served(settings, history.database) as base:
        secret = session_cookie(history.database)
        yield SeededServer(base=base, database=history.database, history=history, browser=browser, secret=secret)
    history.database.dispose()
