"""Comparison, trends, devices, batch size, reports and team, on a team's history."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import SeededServer
from dashboard import complaints_of, wait_for_charts
from playwright.sync_api import BrowserContext, Page, expect
from sqlalchemy import select

from server.db.tables import Run

pytestmark = pytest.mark.browser

ADDRESSES = (
    "/compare",
    "/compare?runs=1,6,11",
    "/compare?experiments=3",
    "/trends",
    "/trends?workload=digits-cnn&recipe=bf16-mixed&by=time",
    "/trends?workload=nothing-like-this",
    "/devices?workload=stdlib-gpt",
    "/batch-size",
    "/reports",
    "/reports/new",
    "/team",
    "/audit",
    "/compare?runs=1,6,150,160&hide=16-mixed,+%231&brush=recipe:0.000-0.700",
)


@pytest.fixture(scope="module", params=[False, True], ids=["light", "dark"])
def themed(request: pytest.FixtureRequest, seeded_server: SeededServer) -> Iterator[BrowserContext]:
    with seeded_server.open(dark=request.param) as opened:
        yield opened


@pytest.fixture
def page(seeded_server: SeededServer) -> Iterator[Page]:
    with seeded_server.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


@pytest.mark.parametrize("path", ADDRESSES)
def test_no_complaint_and_accessible(themed: BrowserContext, path: str) -> None:
    page = themed.new_page()
    complaints = complaints_of(page)
    page.goto(path)
    wait_for_charts(page)
    found = Axe().run(page).response["violations"]
    page.close()
    assert complaints == []
    assert [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found] == []


@pytest.mark.parametrize("path", ADDRESSES)
def test_a_phone_needs_no_sideways_scrolling(seeded_server: SeededServer, path: str) -> None:
    with seeded_server.open(width=390) as phone:
        page = phone.new_page()
        page.goto(path)
        for width in (390, 360):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width


def test_selected_runs_are_compared(page: Page) -> None:
    page.goto("/runs?q=experiment:2&sort=created")
    boxes = page.locator('tr[data-row] input[name="id"]')
    boxes.nth(0).check()
    boxes.nth(1).check()
    ids = [boxes.nth(index).get_attribute("value") for index in (0, 1)]
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(f"**/compare?runs={ids[0]},{ids[1]}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 runs")


def test_a_brush_keeps_some_runs_and_is_in_the_address(seeded_server: SeededServer, page: Page) -> None:
    page.goto("/compare?runs=1,6,11")
    page.get_by_text("Choose ranges by keyboard").click()
    field = page.locator('[data-range="recipe"] [data-low]')
    field.focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    expect(page.locator("[data-line].out")).not_to_have_count(0)
    left = page.locator("[data-line]:not(.out)").count()
    assert 0 < left < 3
    expect(page.locator("[data-shown]")).to_have_text(f"{left} of 3 runs within the ranges")
    assert "brush=recipe:0.400-1.000" in page.url
    with seeded_server.open() as fresh:
        again = fresh.new_page()
        again.goto(page.url)
        expect(again.locator("[data-line]:not(.out)")).to_have_count(left)
    page.get_by_role("button", name="All runs").click()
    expect(page.locator("[data-line].out")).to_have_count(0)
    assert "brush" not in page.url


def test_dragging_along_an_axis_brushes(page: Page) -> None:
    page.goto("/compare?runs=1,6,11")
    box = page.locator('[data-axis="eval/accuracy"] .grab').bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(x, box["y"] + box["height"] * 0.3, steps=4)
    page.mouse.up()
    expect(page.locator("[data-line].out")).not_to_have_count(0)
    assert "brush=eval/accuracy:" in page.url.replace("%2F", "/")


def test_figures_of_the_page_are_those_of_rest(page: Page) -> None:
    told = page.request.get("/api/v1/compare?runs=1,6,11").json()
    page.goto("/compare?runs=1,6,11")
    cells = page.locator("tr[data-run] td:nth-of-type(2)").all_inner_texts()
    assert [float(cell) for cell in cells] == [
        pytest.approx(run["metrics"]["eval/accuracy"]["last"], abs=5e-5) for run in told["runs"]
    ]


def test_the_runs_there_are(seeded_server: SeededServer) -> None:
    """The addresses above name runs of three workloads and of one experiment."""
    with seeded_server.database.read() as session:
        named = session.scalars(select(Run).where(Run.id.in_((1, 6, 11, 150, 160)))).all()
    assert len({run.experiment_id for run in named}) == 3
