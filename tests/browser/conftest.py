"""One seeded dashboard and one Chromium for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dashboard import CHROMIUM, chromium, served, session_cookie, signed_in
from playwright.sync_api import Browser, BrowserContext
from seed import History, write_history

from server.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A served history, and how to open it signed in."""

    base: str
    history: History
    browser: Browser
    secret: str

    def open(self, *, dark: bool = False, width: int = 1440) -> BrowserContext:
        return signed_in(self.browser, self.base, self.secret, dark=dark, width=width)

    def open_as(self, name: str) -> BrowserContext:
        return signed_in(self.browser, self.base, session_cookie(self.history.database, name))


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
        yield Dashboard(base=base, history=history, browser=browser, secret=session_cookie(history.database))
