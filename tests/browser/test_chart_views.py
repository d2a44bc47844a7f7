"""The charts of experiments and runs: controls, zoom, pictures, tables and keys; and their figures beside REST's."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import Dashboard
from dashboard import complaints_of, wait_for_charts
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

SPIKY = "/experiments/2"
VIEWS = (
    f"{SPIKY}?x=time&smooth=0.8&log=loss&hide=16-mixed&full=gradient&pin=bf16-mixed",
    f"{SPIKY}?x=samples&window=100000..400000&show=train%2Floss%2Ceval%2Floss&heat=bf16-mixed&scale=4",
    "/runs/3?x=wall&smooth=0.5&show=grad%2Fnorm",
)


@pytest.fixture
def page(dashboard: Dashboard) -> Iterator[Page]:
    with dashboard.open() as context:
        opened = context.new_page()
        complaints = complaints_of(opened)
        yield opened
        assert complaints == []


def visit(page: Page, path: str) -> None:
    """Open it so high that every chart is drawn."""
    page.set_viewport_size({"width": 1440, "height": 6500})
    page.goto(path)
    wait_for_charts(page)


def chart(page: Page, name: str) -> Any:
    return page.locator(f"[data-chart='{name}']")


def traces(page: Page, name: str) -> list[dict[str, Any]]:
    script = f"""() => JSON.stringify(document.querySelector("[data-chart='{name}'] [data-plot]").data
        .map(({{x, y, name, mode, text, line}}) => ({{x, y, name, mode, text, line}})))"""
    found: list[dict[str, Any]] = json.loads(page.evaluate(script))
    return found


def shown(page: Page) -> str:
    """What the charts and their controls show, but for what time does."""
    return str(
        page.evaluate(
            """() => JSON.stringify([
                [...document.querySelectorAll("[data-plot].js-plotly-plot")].map(({layout, data}) => [
                    layout.xaxis.range, layout.yaxis.range, layout.yaxis.type, data.map((t) => [t.name, t.y.length])]),
                [...document.querySelectorAll("[data-axis], [data-smooth], [data-pin]")].map(({value}) => value),
                [...document.querySelectorAll("[aria-pressed]")].map((one) => one.getAttribute("aria-pressed")),
                [...document.querySelectorAll("[data-note]")].map((note) => note.textContent),
                [...document.querySelectorAll("[data-heat] + *, [data-edge]")].map((edge) => edge.getAttribute("d")),
            ])"""
        )
    )


def settled(page: Page, *, exact: bool) -> str:
    """What is shown when nothing is under way any more; with ``exact`` every stored point of the window is there."""
    page.locator("[data-heat]").wait_for()
    if exact:
        page.wait_for_function(
            """() => [...document.querySelectorAll("[data-note]")]
                .every((note) => !note.textContent.includes("extremes kept"))"""
        )
    before = ""
    while before != (before := shown(page)):
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(600)
    return before


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_is_its_address(dashboard: Dashboard, path: str) -> None:
    seen = []
    for _ in range(2):
        with dashboard.open() as context:
            page = context.new_page()
            visit(page, path)
            seen.append(settled(page, exact="window=" in path))
            assert page.url.endswith(path), "nothing in the address is dropped or spelled anew"
    assert seen[0] == seen[1]


def test_controls_write_themselves_into_the_address(page: Page) -> None:
    visit(page, SPIKY)
    page.select_option("[data-axis]", "time")
    page.locator("[data-smooth]").fill("0.6")
    page.select_option("[data-pin]", "bf16-mixed")
    chart(page, "loss").locator("[data-log]").click()
    page.click("[data-recipe='16-mixed']")
    for part in ("x=time", "smooth=0.6", "pin=bf16-mixed", "log=loss", "hide=16-mixed"):
        assert part in page.url
    expect(chart(page, "loss").locator("[data-note]")).to_contain_text("smoothed 0.6, raw lines kept faint")
    page.wait_for_function(
        """() => document.querySelector("[data-chart='loss'] [data-plot]")
            .layout.xaxis.title.text.startsWith("time since")"""
    )


def test_every_chart_shows_what_rest_answers(page: Page) -> None:
    """Each thin line, point by point, is the series of its run; 7 digits, as the charts are sent."""
    visit(page, "/experiments/3")
    limit = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).max_points")
    charts = page.evaluate(
        "JSON.parse(document.getElementById('page-data').textContent).charts.map(({id, series}) => [id, series])"
    )
    for name, series in charts:
        told = page.request.get(f"/api/v1/experiments/3/series?names={series}&max_points={limit}").json()["runs"]
        compared = 0
        for trace in traces(page, name):
            if not trace.get("text") or not str(trace["text"][0]).startswith("seed") or trace["mode"] == "markers":
                continue
            lines: dict[str, list[tuple[float, float]]] = {}
            for x, y, text in zip(trace["x"], trace["y"], trace["text"], strict=True):
                if text and x is not None and y is not None and not (y in (0.02, 0.98, 0.015) and name == "gradient"):
                    lines.setdefault(text, []).append((x, y))
            for run in told:
                key = f"seed {run['seed']}"
                if run["recipe"] == trace["name"] and run["role"] in ("baseline", "candidate") and key in lines:
                    window = run["series"][series]
                    expected = [
                        (step, float(f"{value:.7g}"))
                        for step, value in zip(window["steps"], window["values"], strict=True)
                        if not isinstance(value, str)
                    ]
                    if len(lines[key]) == len(expected):
                        assert lines[key] == expected, (name, run["run_id"])
                        compared += 1
        assert compared >= 5, name


def test_zooming_one_chart_zooms_all_and_the_whole_range_comes_back(page: Page) -> None:
    visit(page, SPIKY)
    plot = chart(page, "loss").locator(".nsewdrag").first
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5, steps=5)
    page.mouse.up()
    page.wait_for_function("() => location.search.includes('window=')")
    ranges = """() => [...document.querySelectorAll("[data-plot].js-plotly-plot")]
        .map((plot) => plot.layout.xaxis.range.map(Math.round).join())"""
    page.wait_for_function(f"() => new Set(({ranges})()).size === 1")
    expect(chart(page, "loss").locator("[data-note]")).not_to_contain_text("extremes kept")
    page.click("[data-whole]")
    page.wait_for_function("() => !location.search.includes('window=')")
    expect(page.locator("[data-whole]")).to_be_disabled()


def test_the_pointer_is_followed_in_the_other_charts(page: Page) -> None:
    visit(page, SPIKY)
    box = chart(page, "loss").locator(".nsewdrag").first.bounding_box()
    assert box is not None
    for part in (0.2, 0.25, 0.3):
        page.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] * 0.6)
        page.wait_for_timeout(80)
    expect(chart(page, "gradient").locator("[data-hair]")).to_be_visible()
    expect(chart(page, "loss").locator("[data-hair]")).to_be_hidden()


def test_a_chart_is_saved_as_csv_svg_and_png(page: Page) -> None:
    visit(page, "/runs/3")
    loss = chart(page, "loss")
    loss.locator(".save-menu summary").click()
    with page.expect_download() as file:
        loss.locator("[data-csv]").click()
    rows = list(csv.DictReader(io.StringIO(file.value.path().read_text("utf-8"))))
    told = page.request.get("/api/v1/runs/3/series/train/loss?max_points=4000").json()
    assert [int(row["step"]) for row in rows] == told["steps"]
    assert [float(row["value"]) for row in rows] == [float(f"{value:.7g}") for value in told["values"]]
    for kind, start in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with page.expect_download() as picture:
            loss.locator(f"[data-{kind}]").click()
        assert picture.value.suggested_filename == f"training-loss.{kind}"
        assert picture.value.path().read_bytes().startswith(start)


def test_zeros_on_a_log_scale_are_marked(page: Page) -> None:
    visit(page, "/experiments/3")
    expect(chart(page, "gradient").locator("[data-note]")).to_contain_text("750 zeros below the log scale (○)")
    assert any(0.015 in trace["y"] for trace in traces(page, "gradient") if trace["name"] == "16-mixed, no scaler")


def test_further_series_are_charted_together_by_keyboard(page: Page) -> None:
    visit(page, SPIKY)
    page.locator(".series-menu summary").focus()
    page.keyboard.press("Enter")
    for name in ("train/loss", "grad/norm"):
        page.locator(f"[data-series] input[value='{name}']").focus()
        page.keyboard.press("Space")
    page.locator("[data-series] button[value=together]").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**show=**")
    page.wait_for_selector("[data-chart='chosen-0'] .main-svg")
    assert "train/loss" in chart(page, "chosen-0").locator("h3").inner_text()
    assert (
        page.evaluate("document.querySelector(\"[data-chart='chosen-0'] [data-plot]\").layout.yaxis4.side") == "right"
    )


def test_keys_of_a_chart(page: Page) -> None:
    visit(page, "/runs/3")
    log = chart(page, "loss").locator("[data-log]")
    log.focus()
    page.keyboard.press("l")
    expect(log).to_have_attribute("aria-pressed", "true")
    assert "log=loss" in page.url
    page.keyboard.press("?")
    expect(page.locator("[data-chart-dialog]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("[data-chart-dialog]")).to_be_hidden()


def test_a_term_is_explained_on_focus_and_goes_away_by_escape(page: Page) -> None:
    page.goto("/experiments/3")
    tip = page.locator("#term-margin")
    expect(tip).to_be_hidden()
    page.locator("[aria-describedby='term-margin']").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(tip).to_be_visible()
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.keyboard.press("Enter")
    page.wait_for_url("**/help#margin")
    expect(page.locator("#margin")).to_be_visible()


def test_moving_the_loss_scale_shows_what_rest_answers(page: Page) -> None:
    visit(page, "/experiments/3")
    control = page.locator("[data-heat-control]")
    control.locator("input").wait_for()
    control.locator("input").fill("-6")
    expect(control.locator("output")).to_have_text("2⁻⁶")
    run = page.locator("[data-heat]").get_attribute("data-heat")
    kind = page.locator("[data-heat]").get_attribute("data-format")
    told = page.request.get(f"/api/v1/runs/{run}/whatif?format={kind}&scale={2.0**-6}").json()["whole"]
    lost = "none" if told["underflow"] == 0 else f"{100 * told['underflow']:.1f} %"
    expect(control.locator("[data-heat-shares]")).to_contain_text(f"{lost} to zero")
    assert "scale=-6" in page.url
    control.locator("[data-heat-recorded]").click()
    assert "scale" not in page.url


def test_speed_against_quality_is_the_comparison(page: Page) -> None:
    page.goto("/experiments/3")
    told = page.request.get("/api/v1/experiments/3/comparison").json()
    speed = next(one["gain"]["speed"] for one in told["recipes"] if one["recipe"] == "bf16-mixed")
    row = page.locator(".tradeoff-card tbody tr", has_text="bf16-mixed").text_content() or ""
    assert f"{speed['ratio']:.2f}× ({speed['interval'][0]:.2f} to {speed['interval'][1]:.2f})" in row
    assert page.locator(".tradeoff .dot").count() == 2, "emulated recipes have no place in it"
    assert "16-mixed, no scaler" in page.inner_text(".tradeoff-card")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_open_menus_and_explanations_are_accessible(dashboard: Dashboard, dark: bool) -> None:
    with dashboard.open(dark=dark) as context:
        page = context.new_page()
        visit(page, VIEWS[0])
        chart(page, "loss").locator(".save-menu summary").click()
        page.locator(".series-menu summary").click()
        chart(page, "loss").locator("details:not(.save-menu) summary").click()
        page.locator("[data-heat]").wait_for()
        found = Axe().run(page).response["violations"]
    assert [f"{item['id']}: {item['nodes'][0]['html'][:200]}" for item in found] == []


@pytest.mark.parametrize("path", ["/experiments/3?show=train%2Floss", "/runs/3"])
def test_a_phone_needs_no_sideways_scrolling(dashboard: Dashboard, path: str) -> None:
    with dashboard.open(width=390) as phone:
        page = phone.new_page()
        page.goto(path)
        wait_for_charts(page)
        for width in (390, 360):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width


def test_a_printed_page_has_no_controls(page: Page) -> None:
    visit(page, "/experiments/3")
    page.emulate_media(media="print")
    for selector in (".bar", "[data-chart-tools]", ".chart-buttons >> nth=0"):
        expect(page.locator(selector).first).to_be_hidden()
    expect(page.locator(".tradeoff")).to_be_visible()
