"""A real server in a thread of this process, and a Chromium that is signed in to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from server.access.cookies import SESSION_COOKIE
from server.accounts import service as accounts
from server.app import base_url, create_app, listen
from server.db.engine import Database
from server.settings import Settings

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def served(settings: Settings, database: Database) -> Iterator[str]:
    """Serve ``database`` on a free port; yields the base URL."""
    app = create_app(settings, database)
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield base_url(listener)
    finally:
        app.state.stop.set()
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium, without a window and without anything that calls out."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def session_cookie(database: Database, name: str = accounts.FIRST_ADMIN) -> str:
    """The secret of a fresh session of that person."""
    with database.write() as session:
        return accounts.open_session(session, accounts.find_user(session, name), days=1)


def signed_in(browser: Browser, base: str, secret: str, *, dark: bool = False, width: int = 1440) -> BrowserContext:
    """A browser context with the session of ``secret``."""
    context = browser.new_context(
        viewport={"width": width, "height": 900 if width > 600 else 844},
        color_scheme="dark" if dark else "light",
        base_url=base,
        reduced_motion="reduce",
    )
    context.add_cookies([{"name": SESSION_COOKIE, "value": secret, "url": base}])
    return context


def complaints_of(page: Page) -> list[str]:
    """A list that grows by every console error, warning and uncaught exception of ``page``."""
    complaints: list[str] = []
    page.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return complaints


def wait_for_charts(page: Page) -> None:
    """Until every chart near the screen is drawn or says that it has no points."""
    page.wait_for_function(
        """() => [...document.querySelectorAll("[data-plot]")].filter((plot) => {
            const { top, bottom } = plot.getBoundingClientRect();
            const told = plot.querySelector(".main-svg, .empty:not(:has(noscript))");
            return top < innerHeight && bottom > 0 && !told;
        }).length === 0"""
    )
