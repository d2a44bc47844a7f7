"""What a person notices: spikes, NaN and infinity in charts, the address, keys, a phone, clicks to the answer."""

from __future__ import annotations

import json
import re
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from browser.dashboard import wait_for_charts
from playwright.sync_api import BrowserContext, Page

from tests.bench_ui.history import INF_AT, NAN_AT, Written
from tests.bench_ui.table import Row, at_most, holds

LOSS = "[data-chart='loss']"
MOST_TABS = 10
GRAVE = ("critical", "serious")
VIEW = """() => JSON.stringify([
  [...document.querySelectorAll("[data-plot].js-plotly-plot")].filter(({ data }) => data.length)
    .map(({ layout: { xaxis, yaxis }, data }) =>
      [xaxis.range, yaxis.range, yaxis.type, data.map((trace) => [trace.name, trace.y.length])]),
  [...document.querySelectorAll("[data-axis], [data-smooth]")].map(({ value }) => value),
  [...document.querySelectorAll("[aria-pressed]")].map((one) => one.getAttribute("aria-pressed")),
])"""
TRACES = f"""() => JSON.stringify(document.querySelector("{LOSS} [data-plot]").data
  .map(({{ name, x, y, yaxis, mode, marker }}) => ({{ name, x, y, yaxis, mode, symbol: marker?.symbol ?? "" }})))"""
OUTLINED = "() => getComputedStyle(document.activeElement).outlineStyle !== 'none'"
IS_ROW_BOX = "() => document.activeElement.matches('[data-row] input[type=checkbox]')"


def opened(context: BrowserContext, path: str) -> Page:
    page = context.new_page()
    page.goto(path)
    wait_for_charts(page)
    return page


def chart_rows(page: Page, history: Written) -> list[Row]:
    """The loss chart of the experiment: what it keeps, marks and says."""
    page.locator(LOSS).scroll_into_view_if_needed()
    page.wait_for_selector(f"{LOSS} .main-svg")
    wait_for_charts(page)
    traces: list[dict[str, Any]] = json.loads(page.evaluate(TRACES))
    note = page.locator(f"{LOSS} [data-note]").inner_text()
    lines = [value for trace in traces if trace.get("yaxis") != "y3" for value in trace["y"] or [] if value is not None]
    spike = any(abs(value - history.spike) <= 1e-6 * history.spike for value in lines)
    crosses, triangles = _marked(traces, "x"), _marked(traces, "triangle-up")
    runs = page.inner_text("[data-region=runs]")
    nan_told = bool(re.search(rf"NaN in \S+ since step {NAN_AT}", runs))
    drawn_inf = any(value > 1e300 for value in lines)
    most = max(page.eval_on_selector_all(".chart-grid [data-chart]", ROWS))
    return [
        holds("one-step spike", spike, "kept", "lost", "kept"),
        holds(f"NaN from step {NAN_AT}", NAN_AT in crosses and nan_told, "✕ on the axis, badge on the run",
              "not marked", "marked, told"),
        holds("+inf", INF_AT in triangles and not drawn_inf, "▲ on the axis at its step", "not marked", "marked"),
        holds("a spike does not flatten the curves", "beyond the scale" in note, "scale robust, clipped points marked",
              "nothing said of it", "robust scale, marked"),
        holds("one click to the full range", _full_range(page, history.spike), "yes", "no", "yes"),
        holds("smoothing", page.input_value("[data-smooth]") == "0", "off", "on", "off by default"),
        Row(what="charts a row at 1440 px", figure=str(most), budget="2 or 3", met=most in (2, 3)),
    ]  # fmt: skip


ROWS = """(charts) => {
  const rows = new Map();
  for (const chart of charts) {
    const { top } = chart.getBoundingClientRect();
    rows.set(top, (rows.get(top) ?? 0) + 1);
  }
  return [...rows.values()];
}"""


def _marked(traces: list[dict[str, Any]], symbol: str) -> set[int]:
    """Steps that have this mark along the edge of the plot."""
    return {
        step for trace in traces if trace["symbol"] == symbol for step in trace["x"] or [] if step is not None
    }  # fmt: skip


def _full_range(page: Page, spike: float) -> bool:
    page.click(f"{LOSS} [data-full-range]")
    top = page.evaluate(f'document.querySelector("{LOSS} [data-plot]").layout.yaxis.range[1]')
    is_log = page.evaluate(f'document.querySelector("{LOSS} [data-plot]").layout.yaxis.type') == "log"
    page.click(f"{LOSS} [data-full-range]")
    return bool((10**top if is_log else top) >= spike)


def address_rows(context: BrowserContext, path: str) -> list[Row]:
    """A changed view after F5, and in another window by its address."""
    page = opened(context, path)
    page.select_option("[data-axis]", "time")
    page.click("[data-legend] [data-recipe='16-mixed']")
    page.locator("[data-smooth]").fill("0.6")
    page.locator(f"{LOSS} [data-full-range]").click()
    page.locator(f"{LOSS} [data-log]").click()
    page.evaluate("scrollTo(0, 0)")
    before = _settled(page)
    page.reload()
    after = _settled(page, scroll=True)
    other = opened(context, page.url)
    shared = _settled(other, scroll=True)
    other.close()
    page.close()
    return [
        holds("view after F5", before == after, "kept: axis, log, hidden recipe, smoothing, range", "lost", "kept"),
        holds("the same view by its address", before == shared, "yes", "no", "yes"),
    ]


def _settled(page: Page, *, scroll: bool = False) -> str:
    """What is shown when every chart has been drawn and nothing moves any more."""
    if scroll:
        page.locator(LOSS).scroll_into_view_if_needed()
    page.wait_for_selector(f"{LOSS} .main-svg")
    page.set_viewport_size({"width": 1440, "height": 6500})
    wait_for_charts(page)
    before = ""
    while before != (before := str(page.evaluate(VIEW))):
        page.wait_for_timeout(600)
    return before


def key_rows(context: BrowserContext) -> list[Row]:
    """By keyboard alone: the boxes of the runs, and the way out of the page."""
    page = opened(context, "/runs")
    page.wait_for_timeout(2000)  # the list refreshes itself when a run has just ended
    tabs, reached = 0, False
    while tabs < 4 * MOST_TABS and not reached:
        page.keyboard.press("Tab")
        tabs += 1
        reached = bool(page.evaluate(IS_ROW_BOX))
        if not reached and page.evaluate("document.activeElement.matches('.skip')"):
            page.keyboard.press("Enter")
    outlined = bool(page.evaluate(OUTLINED))
    page.keyboard.press("Space")
    works = bool(page.evaluate("document.activeElement.checked"))
    left = _leaves(page)
    page.close()
    figure = f"Tab number {tabs}, with the skip links" if reached else "not reachable"
    return [
        Row(what="run checkboxes by Tab", figure=figure, budget=f"≤ {MOST_TABS} Tabs",
            met=reached and tabs <= MOST_TABS),
        holds("Space ticks the box, its focus is seen", works and outlined, "yes", "no", "yes"),
        holds("Tab leaves the list of runs again", left, "yes", "trapped", "no traps"),
    ]  # fmt: skip


def _leaves(page: Page) -> bool:
    """Whether Tab comes to the foot of the page."""
    for _ in range(400):
        page.keyboard.press("Tab")
        if page.evaluate("Boolean(document.activeElement.closest('footer'))"):
            return True
    return False


def axe_rows(context: BrowserContext, dark: BrowserContext, pages: dict[str, str]) -> list[Row]:
    """Rules of axe-core that find something critical or serious."""
    rows = []
    for name, path in pages.items():
        counts = []
        for opener in (context, dark):
            page = opened(opener, path)
            found = [one["impact"] for one in Axe().run(page).response["violations"]]
            counts.append([found.count(impact) for impact in GRAVE])
            page.close()
        figure = "; ".join(f"{a} / {b} {mode}" for (a, b), mode in zip(counts, ("light", "dark"), strict=True))
        rows.append(Row(what=f"axe {name}, rules critical / serious", figure=figure, budget="0 / 0",
                        met=not any(map(sum, counts))))  # fmt: skip
    return rows


def phone_rows(phone: BrowserContext, paths: list[str]) -> list[Row]:
    """Pages at 390 px, which nobody wants to scroll sideways."""
    widest = 0
    for path in paths:
        page = opened(phone, path)
        widest = max(widest, int(page.evaluate("document.documentElement.scrollWidth - innerWidth")))
        page.close()
    return [at_most(f"phone 390 px, beyond its width ({len(paths)} pages)", widest, 0, "px")]


def answer_rows(context: BrowserContext, history: Written) -> list[Row]:
    """Clicks from the main page to whether bf16 is as good as fp32, and how much faster."""
    page = opened(context, "/")
    in_sight = [_in_sight(page, "main")]
    page.click(f"a[href='/experiments/{history.experiment_id}']")
    page.wait_for_url(f"**/experiments/{history.experiment_id}")
    wait_for_charts(page)
    in_sight.append(_in_sight(page, "[data-region=findings]"))
    whole = page.inner_text("[data-region=verdicts]")
    page.close()
    clicks = next((number for number, text in enumerate(in_sight) if _answers(text)), None)
    measures = re.findall(r"\d\.\d+× ?\S*", whole)
    scorecard = "interval" in whole and "seeds" in whole and len(measures) >= 2
    figure = "not within one click" if clicks is None else f"{clicks} clicks"
    return [
        Row(what="“is bf16 as good as fp32, and faster?”", figure=figure, budget="0 clicks", met=clicks == 0),
        holds("difference, interval, margin, speed, memory, seeds", scorecard, "on its page, no click in it",
              "not together", "no click"),
    ]  # fmt: skip


def _answers(text: str) -> bool:
    """Whether a text says of bf16 that it is (not) as good and how much faster it is."""
    return (
        "bf16-mixed" in text
        and bool(re.search(r"\d\.\d+(×| times)", text))
        and bool(re.search(r"SAFE|safe|as good", text))
    )


def _in_sight(page: Page, selector: str) -> str:
    """The text of what a window of 900 px shows without scrolling."""
    return str(page.locator(selector).evaluate(SEEN))


SEEN = """(root) => {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const seen = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const box = node.parentElement.getBoundingClientRect();
    if (box.width && box.bottom > 0 && box.bottom <= innerHeight) seen.push(node.textContent.trim());
  }
  return seen.filter(Boolean).join(" ");
}"""
