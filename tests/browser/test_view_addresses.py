"""Every kind of view is changed by its controls, and its address shows the same in a browser that has seen nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from conftest import SeededServer
from dashboard import complaints_of
from playwright.sync_api import Page, expect
from views import assert_same_view, open_tall, plot_area

pytestmark = pytest.mark.browser


def change_runs(page: Page) -> None:
    page.locator("#state").select_option("completed")
    page.wait_for_url(re.compile("state=completed"))
    page.get_by_role("link", name="Primary metric").click()
    page.wait_for_url(re.compile("sort="))
    page.locator("summary", has_text="Columns").click()
    page.get_by_label("Owner").uncheck()
    page.get_by_label("Seed", exact=True).check()
    page.get_by_role("button", name="Show these").click()
    page.wait_for_url(re.compile("cols="))
    page.locator("[data-next]").click()
    page.wait_for_url(re.compile("cursor="))


def change_groups(page: Page) -> None:
    page.locator("#group").select_option("recipe")
    page.wait_for_url(re.compile("group=recipe"))
    page.get_by_role("button", name="bf16-mixed").click()
    page.wait_for_url(re.compile("open=bf16-mixed"))


def change_experiments(page: Page) -> None:
    page.locator("#q").fill("tag:baseline")
    page.locator("#q").press("Enter")
    page.wait_for_url(re.compile("q=tag"))
    page.locator("#archived").select_option("any")
    page.wait_for_url(re.compile("archived=any"))


def change_charts(page: Page) -> None:
    page.select_option("[data-axis]", "time")
    page.locator("[data-smooth]").fill("0.7")
    page.select_option("[data-pin]", "bf16-mixed")
    page.click("[data-legend] [data-recipe='16-mixed']")
    page.click("[data-chart='loss'] [data-log]")
    expect(page.locator("[data-chart='loss'] [data-note]")).to_contain_text("smoothed 0.7")


def zoom(page: Page) -> None:
    box = plot_area(page, "loss")
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.5, steps=5)
    page.mouse.up()
    page.wait_for_function("() => location.search.includes('window=')")


def change_run(page: Page) -> None:
    page.select_option("[data-axis]", "wall")
    page.locator("[data-smooth]").fill("0.4")
    page.click("[data-chart='gradient'] [data-log]")


def choose_series(page: Page) -> None:
    page.locator(".series-menu summary").click()
    for name in ("train/loss", "grad/norm"):
        page.locator(f"[data-series] input[value='{name}']").check()
    with page.expect_navigation():
        page.locator("[data-series] button[value=together]").click()
    page.wait_for_selector("[data-chart='chosen-0'] .main-svg")


def change_comparison(page: Page) -> None:
    page.locator("[data-legend] [data-recipe]").first.click()
    page.get_by_text("Choose ranges by keyboard").click()
    low = page.locator('[data-range="recipe"] [data-low]')
    low.focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    page.get_by_text("Choose ranges by keyboard").click()
    assert "brush=" in page.url


def change_trends(page: Page) -> None:
    page.locator("[name=recipe]").first.select_option("bf16-mixed")
    page.locator("[name=by]").select_option("time")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url(re.compile("by=time"))


def change_workload(page: Page) -> None:
    page.locator("main form.toolbar [name=workload]").select_option("photo-denoiser")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url(re.compile("workload=photo-denoiser"))


def change_audit(page: Page) -> None:
    page.locator("[name=user]").select_option("ann")
    page.locator("main form.toolbar button").click()
    page.wait_for_url(re.compile("user=ann"))


def to_a_term(page: Page) -> None:
    page.goto("/experiments/3")
    page.locator("[aria-describedby='term-margin']").first.click()
    page.wait_for_url("**/help#margin")


KINDS: dict[str, tuple[str, Callable[[Page], None]]] = {
    "runs": ("/runs", change_runs),
    "runs in groups": ("/runs", change_groups),
    "experiments": ("/experiments", change_experiments),
    "experiment": ("/experiments/2", change_charts),
    "experiment, zoomed": ("/experiments/4", zoom),
    "experiment, chosen series": ("/experiments/3", choose_series),
    "run": ("/runs/5", change_run),
    "run, zoomed": ("/runs/5", zoom),
    "comparison": ("/compare?runs=1,6,11", change_comparison),
    "trends": ("/trends?workload=digits-cnn", change_trends),
    "devices": ("/devices?workload=digits-cnn", change_workload),
    "batch size": ("/batch-size?workload=digits-cnn", change_workload),
    "audit": ("/audit", change_audit),
    "help": ("/help", to_a_term),
}


@pytest.fixture
def page(seeded_server: SeededServer) -> Iterator[Page]:
    with seeded_server.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_address_of_a_changed_view_shows_it_to_whoever_gets_it(
    seeded_server: SeededServer, page: Page, kind: str
) -> None:
    path, change = KINDS[kind]
    open_tall(page, path)
    change(page)
    assert not page.url.endswith(path), "the change is in the address"
    with seeded_server.open() as elsewhere:
        other = elsewhere.new_page()
        complaints = complaints_of(other)
        open_tall(other, page.url)
        assert_same_view(page, other)
        assert other.url == page.url
        assert complaints == []


@pytest.mark.parametrize("kind", ["runs", "experiment", "trends"])
def test_back_and_reload_keep_views(page: Page, kind: str) -> None:
    path, change = KINDS[kind]
    open_tall(page, path)
    change(page)
    changed = page.url
    page.goto("/help")
    page.go_back()
    assert page.url == changed
    page.reload()
    assert page.url == changed
