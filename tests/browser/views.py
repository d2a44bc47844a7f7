"""What a page shows, as one text that two browsers can be compared by; and the wait until both show the same."""

from __future__ import annotations

import json
import time
from typing import Any

from dashboard import wait_for_charts
from playwright.sync_api import Page

TALL = {"width": 1440, "height": 6500}  # every chart is near the screen, so all of them are drawn
WAIT_S = 20.0

_STATE = r"""() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const name = (one) => one.name || one.id || [...one.attributes].map(({ name }) => name).join();
  const rounded = (range) => (range ?? []).map((end) => (typeof end === "number" ? Number(end.toPrecision(9)) : end));
  const ago = /(\d+ \w+ ago|in about [\w ]+|just now)/g;
  return JSON.stringify({
    title: document.title,
    fields: all("main select, main textarea, main input:not([type=hidden])")
      .map((one) => [name(one), one.type === "checkbox" ? one.checked : one.value]),
    controls: all("main [aria-pressed], main [aria-expanded], main [aria-sort], main [aria-current]")
      .map((one) => ["aria-pressed", "aria-expanded", "aria-sort", "aria-current"].map((key) => one.getAttribute(key))),
    plots: all("[data-plot].js-plotly-plot").filter(({ layout }) => layout).map(({ layout, data }) => [
      layout.xaxis.title.text, rounded(layout.xaxis.range), rounded(layout.yaxis.range), layout.yaxis.type,
      data.map((trace) => [trace.name, trace.y.length, trace.line?.color, trace.fill ?? ""]),
    ]),
    notes: all("[data-note]").map((note) => note.textContent),
    lines: all("[data-line].out").map((line) => line.dataset.line),
    drawings: all("main svg:not([data-hair]) polyline, main svg circle, [data-edge]")
      .map((one) => ["points", "d", "cx", "cy"].map((key) => one.getAttribute(key) ?? "").join()),
    headings: all("main h1, main h2, main h3").map((one) => one.textContent),
    rows: all("main tr").map((row) => row.textContent.replace(ago, "").replace(/\s+/g, " ")),
  });
}"""


def open_tall(page: Page, path: str) -> None:
    """Open a page so high that every chart is drawn, and wait for them."""
    page.set_viewport_size(TALL)
    page.goto(path)
    wait_for_charts(page)


def state(page: Page) -> dict[str, Any]:
    """Everything that a view is made of, but for what time does to it."""
    found: dict[str, Any] = json.loads(page.evaluate(_STATE))
    return found


def assert_same_view(first: Page, second: Page) -> None:
    """That both come to show the same within `WAIT_S`, when whatever was under way is done."""
    deadline = time.monotonic() + WAIT_S
    one, other = state(first), state(second)
    while one != other and time.monotonic() < deadline:
        second.wait_for_timeout(200)
        one, other = state(first), state(second)
    differing = {part: _difference(one[part], other[part]) for part in one if one[part] != other[part]}
    assert not differing, differing


def _difference(one: Any, other: Any) -> Any:
    """The items of two lists that are not equal, or both."""
    if isinstance(one, list) and len(one) == len(other):
        return [pair for pair in zip(one, other, strict=True) if pair[0] != pair[1]][:3]
    return one, other


def plot_area(page: Page, chart: str) -> dict[str, float]:
    """Where a drawn chart can be dragged over: x, y, width, height in the window. Found and measured in one step."""
    found: dict[str, float] = page.wait_for_function(
        """(name) => {
          const area = document.querySelector(`[data-chart="${name}"] .nsewdrag`)?.getBoundingClientRect();
          return area?.width > 100 && { x: area.x, y: area.y, width: area.width, height: area.height };
        }""",
        arg=chart,
    ).json_value()
    return found


def traces(page: Page, chart: str) -> list[dict[str, Any]]:
    """The traces of a drawn chart: x, y, step and label of each point, and how they are drawn."""
    found: list[dict[str, Any]] = page.evaluate(
        """(name) => JSON.parse(JSON.stringify(document.querySelector(`[data-chart="${name}"] [data-plot]`).data
            .map(({ x, y, name, mode, text, customdata, fill, yaxis, marker }) =>
              ({ x, y, name, mode, text: text ?? null, customdata: customdata ?? null, fill: fill ?? "",
                yaxis: yaxis ?? "y", symbol: marker?.symbol ?? "" }))))""",
        chart,
    )
    return found


def page_charts(page: Page) -> list[dict[str, Any]]:
    """The charts that the server told the page of: id, series, and what else is in them."""
    found: list[dict[str, Any]] = page.evaluate(
        """JSON.parse(document.getElementById("page-data").textContent)
            .charts.map(({ id, series, names, also, speed }) => ({ id, series, names, also, speed }))"""
    )
    return found
