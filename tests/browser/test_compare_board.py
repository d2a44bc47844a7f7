"""The charts of a comparison: shared tools, live points, and every curve as its difference from a pinned run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Dashboard
from dashboard import complaints_of, wait_for_charts
from playwright.sync_api import Page, expect
from sqlalchemy import select

from server.db.tables import Run

pytestmark = pytest.mark.browser
SPIKY = 2  # the experiment in which 16-mixed is NaN from step 700 on


@pytest.fixture
def page(dashboard: Dashboard) -> Iterator[Page]:
    with dashboard.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


def runs_of(dashboard: Dashboard, recipe: str) -> list[int]:
    query = select(Run.id).where(Run.experiment_id == SPIKY, Run.recipe_name == recipe, Run.kind == "train")
    with dashboard.database.read() as session:
        found = session.scalars(query.where(Run.role != "control").order_by(Run.seed)).all()
    assert found
    return list(found)


def visit(page: Page, path: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 5200})
    page.goto(path)
    wait_for_charts(page)


def seeds(page: Page, chart: str = "loss") -> dict[str, dict[int, float]]:
    """What a chart draws of each run, by its label: step to value."""
    script = f"""() => JSON.stringify(document.querySelector("[data-chart='{chart}'] [data-plot]").data
        .filter(({{ text, yaxis }}) => Array.isArray(text) && !yaxis).map(({{ x, y, text }}) => [x, y, text]))"""
    drawn: dict[str, dict[int, float]] = {}
    for x, y, text in json.loads(page.evaluate(script)):
        for step, value, label in zip(x, y, text, strict=True):
            if label and value is not None:
                drawn.setdefault(label, {})[step] = value
    return drawn


def series(page: Page, run: int) -> dict[int, float]:
    told: dict[str, Any] = page.request.get(f"/api/v1/runs/{run}/series/train/loss?max_points=5000").json()
    return {
        step: value for step, value in zip(told["steps"], told["values"], strict=True) if not isinstance(value, str)
    }


def test_a_comparison_has_the_tools_of_every_chart_page(dashboard: Dashboard, page: Page) -> None:
    first, second = runs_of(dashboard, "32-true")[0], runs_of(dashboard, "bf16-mixed")[0]
    visit(page, f"/compare?runs={first},{second}")
    page.locator("select[data-axis]").select_option("time")
    page.locator("[data-smooth]").fill("0.5")
    loss = page.locator("[data-chart=loss]")
    loss.locator("[data-log]").click()
    expect(loss.locator("[data-note]")).to_contain_text("smoothed 0.5")
    assert all(word in page.url for word in ("x=time", "smooth=0.5", "log=loss"))
    loss.locator(".save-menu summary").click()
    with page.expect_download() as saved:
        loss.locator("[data-csv]").click()
    assert saved.value.suggested_filename.endswith(".csv")
    again = page.context.new_page()
    visit(again, page.url)
    expect(again.locator("[data-chart=loss] [data-note]")).to_contain_text("smoothed 0.5")
    assert again.locator("select[data-axis]").input_value() == "time"
    again.close()


def test_every_curve_less_that_of_a_pinned_run(dashboard: Dashboard, page: Page) -> None:
    pinned, other = runs_of(dashboard, "32-true")[0], runs_of(dashboard, "bf16-mixed")[0]
    visit(page, f"/compare?runs={pinned},{other}")
    page.locator("[data-minus]").select_option(str(pinned))
    expect(page.locator("[data-chart=loss] [data-note]")).to_contain_text("difference from the pinned runs")
    page.wait_for_function(
        "() => document.querySelector('[data-chart=loss] [data-plot]').layout.yaxis.title.text.startsWith('difference')"
    )
    assert f"minus={pinned}" in page.url
    drawn, ours, theirs = seeds(page), series(page, pinned), series(page, other)
    zero = next(curve for label, curve in drawn.items() if label.startswith(f"run {pinned},"))
    assert set(zero.values()) == {0}
    curve = next(curve for label, curve in drawn.items() if label.startswith(f"run {other},"))
    assert len(curve) > 100
    for step, value in curve.items():
        assert value == pytest.approx(theirs[step] - ours[step], rel=1e-5, abs=1e-9), step
    reach = max(abs(theirs[step] - ours[step]) for step in theirs.keys() & ours.keys())
    assert max(map(abs, curve.values())) == pytest.approx(reach, rel=1e-5)  # the largest difference outlives sampling
    fresh = page.context.new_page()
    visit(fresh, page.url)
    expect(fresh.locator("[data-minus]")).to_have_value(str(pinned))
    fresh.wait_for_function("() => document.querySelector('[data-chart=loss] [data-plot]').data?.length")
    assert seeds(fresh) == drawn
    fresh.close()
    page.locator("[data-minus]").select_option("")
    page.wait_for_function(
        "() => document.querySelector('[data-chart=loss] [data-plot]').layout.yaxis.title.text === 'loss'"
    )
    assert "minus" not in page.url


def test_a_run_that_broke_stays_marked_in_the_difference(dashboard: Dashboard, page: Page) -> None:
    pinned, broken = runs_of(dashboard, "32-true"), runs_of(dashboard, "16-mixed")[0]
    visit(page, f"/compare?runs={','.join(map(str, pinned))},{broken}&minus={','.join(map(str, pinned))}")
    note = page.locator("[data-chart=loss] [data-note]")
    expect(note).to_contain_text("16-mixed: NaN, +∞ since step 701")
    curve = next(curve for label, curve in seeds(page).items() if label.startswith(f"run {broken},"))
    assert curve
    assert max(curve) <= 700


def test_points_arrive_while_a_compared_run_is_running(dashboard: Dashboard, page: Page) -> None:
    with dashboard.database.read() as session:
        running = session.scalars(select(Run).where(Run.state == "running").order_by(Run.id)).first()
        assert running is not None
        ended = session.scalars(
            select(Run.id).where(Run.experiment_id == running.experiment_id, Run.state == "completed").order_by(Run.id)
        ).first()
    visit(page, f"/compare?runs={ended},{running.id}")
    expect(page.locator("[data-live]")).to_have_text("live")
    label = f"run {running.id},"
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    dashboard.history.add_point("train/loss", 0.4242)
    _await_value(page, label, 0.4242)
    assert not [url for url in requests if "/points" in url]  # it came by the stream
    page.locator("[data-minus]").select_option(str(running.id))
    page.wait_for_function(
        "() => document.querySelector('[data-chart=loss] [data-plot]').layout.yaxis.title.text.startsWith('difference')"
    )
    requests.clear()
    dashboard.history.add_point("train/loss", 0.5)
    page.wait_for_timeout(1500)
    tails = [url for url in requests if "/points" in url and "minus=" in url]
    assert tails
    assert all("from=" in url for url in tails)
    assert set(next(curve for name, curve in seeds(page).items() if name.startswith(label)).values()) == {0}


def test_hiding_all_that_has_a_series_offers_the_way_back(dashboard: Dashboard, page: Page) -> None:
    visit(page, f"/compare?runs={runs_of(dashboard, 'bf16-mixed')[0]}")
    page.locator("[data-legend] [data-recipe]").click()
    empty = page.locator("[data-chart=loss] .empty")
    expect(empty).to_contain_text("bf16-mixed is hidden")
    empty.get_by_role("button", name="Show bf16-mixed").click()
    expect(page.locator("[data-chart=loss] .main-svg").first).to_be_visible()
    expect(page.locator("[data-legend] [data-recipe]")).to_have_attribute("aria-pressed", "true")
    assert "hide" not in page.url


def test_an_axis_chosen_while_points_come_is_not_lost(dashboard: Dashboard, page: Page) -> None:
    run = runs_of(dashboard, "bf16-mixed")[0]
    page.set_viewport_size({"width": 1440, "height": 5200})
    held: list[Any] = []
    page.route("**/points?**", lambda route: held.append(route) if len(held) < 1 else route.continue_())
    page.goto(f"/compare?runs={run}")
    page.wait_for_timeout(300)
    page.locator("select[data-axis]").select_option("time")
    assert held, "the first request was caught"
    held[0].continue_()
    page.wait_for_function(
        "() => (document.querySelector('[data-chart=loss] [data-plot]').data?.[0]?.x ?? []).some((x) => x > 0)"
    )
    title = page.evaluate("document.querySelector('[data-chart=loss] [data-plot]').layout.xaxis.title.text")
    assert title == "time since the run began"
    expect(page.locator("[data-chart=loss] [data-note]")).not_to_contain_text("not recorded for this axis")


def _await_value(page: Page, label: str, value: float) -> None:
    page.wait_for_function(
        """([label, value]) => document.querySelector("[data-chart=loss] [data-plot]").data
            .some(({ y, text }) => y?.some((one, at) => one === value && text?.[at]?.startsWith(label)))""",
        arg=[label, value],
        timeout=5000,
    )
