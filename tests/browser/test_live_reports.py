"""Reports while their runs go on, the preview of the editor, notes and notifications in the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import Dashboard
from dashboard import complaints_of, wait_for_charts
from playwright.sync_api import Page, expect
from sqlalchemy import select

from server.db.tables import Run
from server.webhooks.outbox import announce

pytestmark = pytest.mark.browser
BODY = "## Asked\n\n```chart\nexperiment: 4\nseries: train/loss\ntitle: The loss now\n```\n\nEnd."


@pytest.fixture
def page(dashboard: Dashboard) -> Iterator[Page]:
    with dashboard.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


def _accessible(page: Page) -> None:
    found = Axe().run(page).response["violations"]
    assert [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found] == []


def test_a_report_is_previewed_written_and_goes_on_live(dashboard: Dashboard, page: Page) -> None:
    page.goto("/reports/new")
    page.locator("[name=title]").fill("Live")
    page.locator("[name=body]").fill(BODY)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Preview")).to_be_visible()
    page.locator("[data-plot]").scroll_into_view_if_needed()
    wait_for_charts(page)
    expect(page.locator("[data-chart] .main-svg").first).to_be_attached()
    assert page.locator("[name=body]").input_value().strip() == BODY.strip()
    assert page.request.get("/api/v1/reports").json()["items"] == []
    _accessible(page)
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url(re.compile(r"/reports/\d+$"))
    wait_for_charts(page)
    expect(page.locator("[data-live]")).to_have_text("live")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    dashboard.history.add_point("train/loss", 0.7171)
    page.wait_for_function(
        "() => document.querySelector('[data-plot]').data.some(({ y }) => y?.includes(0.7171))", timeout=5000
    )
    assert not [url for url in requests if "/points" in url]
    page.locator("[data-log]").click()
    assert "log=block-" in page.url
    _accessible(page)
    exported = page.request.get(f"{page.url.partition('?')[0]}/export.html").text()
    assert "<svg" in exported
    assert "<script" not in exported
    assert page.request.delete(f"/api/v1{re.search(r'/reports/[0-9]+', page.url)[0]}").status in (204, 403)  # type: ignore[index]


@pytest.mark.parametrize("path", ["/experiments/1", "/runs/3"])
def test_a_note_is_written_on_its_page(page: Page, path: str) -> None:
    page.goto(path)
    notes = page.locator("#notes")
    notes.locator("summary").click()
    notes.locator("[name=text]").fill("Seen **twice**")
    notes.locator("[name=tags]").fill("odd, to check")
    notes.get_by_role("button", name="Save").click()
    expect(page.locator("#notes strong")).to_have_text("twice")
    expect(page.locator("#notes .badge")).to_have_text(["odd", "to check"])
    _accessible(page)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_bell_leads_to_what_was_told_and_to_choices(dashboard: Dashboard, dark: bool) -> None:
    with dashboard.database.write() as session:
        run = session.scalars(select(Run).order_by(Run.id)).first()
        assert run is not None
        payload = {"workload": f"w-{dark}", "message": "speed fell by 9 %", "experiment": {"id": 1, "name": "e",
                   "page": "/experiments/1"}}  # fmt: skip
        announce(session, "trend.alert", payload, datetime.now(UTC), dashboard.history.principal.user_id)
    with dashboard.open(dark=dark) as context:
        page = context.new_page()
        complaints = complaints_of(page)
        page.goto("/experiments")
        bell = page.get_by_role("link", name="Notifications:")
        bell.focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/notifications")
        _accessible(page)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.get_by_label("Lost workers").select_option("off")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_have_text("saved")
        expect(page.get_by_label("Lost workers")).to_have_value("off")
        page.get_by_role("button", name="speed fell by 9 %").first.click()
        page.wait_for_url("**/experiments/1")
        assert complaints == []
