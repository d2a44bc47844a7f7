"""A page that follows a run: how late a point is on the chart, and what travels for it."""

from __future__ import annotations

import statistics
import time

from browser.dashboard import signed_in, wait_for_charts
from playwright.sync_api import Browser, Page

from amp_core import tracking
from tests.bench_store.ours import Site
from tests.bench_ui.table import Row, at_most, holds

NUM_POINTS, NUM_BEFORE = 7, 1000
MOST_S = 1.1
IDLE_S = 5.0
SETTLE_MS = 2000
HAS = """(value) => (document.querySelector("[data-chart='loss'] [data-plot]").data ?? [])
  .some((trace) => trace.y.includes(value))"""


class _Counted:
    """Requests and bytes of a page since it was last asked, as Chromium's network layer counts them."""

    def __init__(self, page: Page) -> None:
        self.requests, self.num_bytes = 0, 0
        session = page.context.new_cdp_session(page)
        session.on("Network.requestWillBeSent", lambda _: self._add(1, 0))
        session.on("Network.dataReceived", lambda told: self._add(0, told["dataLength"]))
        session.send("Network.enable")

    def _add(self, requests: int, num_bytes: int) -> None:
        self.requests += requests
        self.num_bytes += num_bytes

    def take(self) -> tuple[int, int]:
        taken = self.requests, self.num_bytes
        self.requests = self.num_bytes = 0
        return taken


def following_rows(browser: Browser, at: Site, secret: str) -> list[Row]:
    """A run of the SDK logs points over HTTP; the page shows them without a reload."""
    run = tracking.init("followed", url=at.url, token=at.token, recipe="bf16-mixed", steps=2 * NUM_BEFORE)
    for step in range(NUM_BEFORE):
        run.log({"train/loss": 2.0 + 1 / (1 + step)}, step=step)
    with signed_in(browser, at.url, secret) as context:
        page = context.new_page()
        counted = _Counted(page)
        page.goto(f"/runs/{run.id}")
        page.wait_for_selector("[data-live][data-state=live]")
        page.locator("[data-chart='loss']").scroll_into_view_if_needed()
        wait_for_charts(page)
        page.wait_for_function(HAS, arg=2.0 + 1 / NUM_BEFORE, timeout=60_000)
        page.wait_for_timeout(SETTLE_MS)
        page.evaluate("window.neverReloaded = true")
        counted.take()
        page.wait_for_timeout(IDLE_S * 1000)
        idle_requests, idle_bytes = counted.take()
        delays = [_delay(page, run, number) for number in range(NUM_POINTS)]
        page.wait_for_timeout(SETTLE_MS)
        requests, num_bytes = counted.take()
        stayed = bool(page.evaluate("window.neverReloaded === true"))
        says = page.inner_text("[data-live]")
    run.finish()
    each = f"slowest of {NUM_POINTS} {max(delays):.2f} s, SDK to drawn line"
    return [
        at_most("a new point appears", statistics.median(delays), MOST_S, "s", each, digits=2),
        holds("live without a reload, and says so", stayed and says == "live", "yes", "no", "yes"),
        Row(what=f"what travels for {NUM_POINTS} points", figure=f"{num_bytes / 1000:.1f} kB, {requests} requests"),
        Row(what=f"idle for {IDLE_S:.0f} s", figure=f"{idle_requests} requests, {idle_bytes} bytes",
            budget="0 requests", met=idle_requests == 0),
    ]  # fmt: skip


def _delay(page: Page, run: tracking.TrackedRun, number: int) -> float:
    """Seconds from the call of log to the point in the chart."""
    value = 7.0 + number / 8
    begun = time.monotonic()
    run.log({"train/loss": value}, step=NUM_BEFORE + number)
    page.wait_for_function(HAS, arg=value, timeout=60_000, polling=20)
    took = time.monotonic() - begun
    page.wait_for_timeout(700)  # the next point is one of its own
    return took
