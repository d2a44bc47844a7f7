"""Every kind of page with hostile, long, non-Latin, empty and huge values: quiet, accessible, and names stay text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SeededServer
from dashboard import complaints_of, wait_for_charts
from playwright.sync_api import BrowserContext, Page
from seeded.questions import HOSTILE, LONG, NON_LATIN

pytestmark = pytest.mark.browser

# Lists, comparison, trends, devices, batch size, reports and team are in test_lists and test_team_views.
PAGES = {
    "a hostile name": "/experiments/2",
    "a long name, twenty tags": "/experiments/4",
    "a name in many scripts": "/experiments/5",
    "fifty curves of 100,000 steps": "/experiments/6",
    "failed runs, a note of 10,000 characters, 1e300": "/experiments/8",
    "a name that is 0, one step": "/experiments/9",
    "stopped by hand": "/experiments/10",
    "running": "/experiments/11",
    "waiting": "/experiments/12",
    "a run with NaN": "/runs?q=experiment:2+recipe:16-mixed+kind:train",
    "a run that failed": "/runs?q=status:failed",
    "a benchmark": "/runs?q=kind:benchmark",
    "a run that waits": "/runs?q=experiment:12",
    "hostile names compared": "/compare?experiments=2",
    "a new experiment like a hostile one": "/experiments/new?from=2",
    "account": "/account",
    "help": "/help",
    "workers": "/workers",
    "workloads": "/workloads",
}


@pytest.fixture(scope="module", params=[False, True], ids=["light", "dark"])
def themed(request: pytest.FixtureRequest, seeded_server: SeededServer) -> Iterator[BrowserContext]:
    with seeded_server.open(dark=request.param) as opened:
        yield opened


def visit(page: Page, path: str) -> None:
    page.goto(path)
    if path.startswith("/runs?"):  # the first run of that list
        page.goto(page.locator(".row-link").first.get_attribute("href") or "")
    wait_for_charts(page)


@pytest.mark.parametrize("what", PAGES)
def test_no_complaint_no_dialog_and_accessible(themed: BrowserContext, what: str) -> None:
    page = themed.new_page()
    complaints = complaints_of(page)
    dialogs: list[Any] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    visit(page, PAGES[what])
    found = Axe().run(page).response["violations"]
    title = page.title()
    injected = page.locator("main img[onerror], main script:not([type]), main b > script").count()
    page.close()
    assert complaints == []
    assert dialogs == []
    assert title != "owned"
    assert injected == 0
    assert [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found] == []


@pytest.mark.parametrize("what", [what for what, path in PAGES.items() if path.startswith(("/experiments/", "/runs"))])
def test_a_phone_needs_no_sideways_scrolling(seeded_server: SeededServer, what: str) -> None:
    with seeded_server.open(width=360) as phone:
        page = phone.new_page()
        complaints = complaints_of(page)
        visit(page, PAGES[what])
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert complaints == []


@pytest.mark.parametrize(("number", "name"), [(2, HOSTILE), (4, LONG[:200]), (5, NON_LATIN), (9, "0")])
def test_names_are_shown_whole_and_as_text(themed: BrowserContext, number: int, name: str) -> None:
    page = themed.new_page()
    page.goto(f"/experiments/{number}")
    assert page.inner_text("h1") == name
    assert page.title() == f"{name} · ampboard"
    page.close()
