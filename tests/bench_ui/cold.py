"""A page opened by a browser that has nothing of it yet: paints, bytes, requests, long tasks, layout shifts."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, fields
from functools import partial

from browser.dashboard import complaints_of, signed_in, wait_for_charts
from playwright.sync_api import Browser, Page, Request

QUIET_MS = 1500  # drawing goes on after the last chart is there
WATCH = """
window.seen_ = { tasks: [], largest: 0, shift: 0 };
const watch = (type, take) => new PerformanceObserver((list) => list.getEntries().forEach(take))
  .observe({ type, buffered: true });
watch("longtask", (entry) => window.seen_.tasks.push(entry.duration));
watch("largest-contentful-paint", (entry) => { window.seen_.largest = entry.startTime; });
watch("layout-shift", (entry) => { if (!entry.hadRecentInput) window.seen_.shift += entry.value; });
"""
FIRST = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"


@dataclass(frozen=True, kw_only=True)
class Load:
    """One cold load, or the medians of several. Times in ms, ``kb`` in 1,000 bytes as they travelled with headers."""

    first: float
    largest: float
    kb: float
    requests: float
    library_kb: float
    library_requests: float
    num_tasks: float
    longest_task: float
    blocking: float  # what long tasks took beyond 50 ms each, together
    shift: float  # cumulative layout shift, without unit


@dataclass(frozen=True, kw_only=True)
class Loads:
    """The medians of some cold loads, the fastest largest paint, and what went wrong in any."""

    median: Load
    best_largest: float
    complaints: list[str]
    foreign: list[str]  # requests to another host


def cold(browser: Browser, base: str, secret: str, path: str, rounds: int) -> Loads:
    """Open ``path`` in a fresh context ``rounds`` times, at 1440×900."""
    loads, complaints, foreign = [], [], []
    for _ in range(rounds):
        with signed_in(browser, base, secret) as context:
            context.add_init_script(WATCH)
            page = context.new_page()
            told = complaints_of(page)
            asked: list[Request] = []
            page.on("request", partial(_keep, asked))
            page.goto(path)
            wait_for_charts(page)
            page.wait_for_timeout(QUIET_MS)
            loads.append(_load(page, asked))
            complaints += told
            foreign += [request.url for request in asked if not request.url.startswith((base, "data:", "blob:"))]
    median = Load(
        **{field.name: statistics.median(getattr(load, field.name) for load in loads) for field in fields(Load)}
    )
    return Loads(
        median=median, best_largest=min(load.largest for load in loads), complaints=complaints, foreign=foreign
    )


def _keep(asked: list[Request], request: Request) -> None:
    asked.append(request)


def _load(page: Page, asked: list[Request]) -> Load:
    seen = page.evaluate("window.seen_")
    asked = [request for request in asked if request.url.startswith("http")]
    library = [request for request in asked if "plotly" in request.url]
    return Load(
        first=page.evaluate(FIRST),
        largest=seen["largest"],
        kb=sum(_num_bytes(request) for request in asked if request not in library) / 1000,
        requests=len(asked) - len(library),
        library_kb=sum(map(_num_bytes, library)) / 1000,
        library_requests=len(library),
        num_tasks=len(seen["tasks"]),
        longest_task=max(seen["tasks"], default=0.0),
        blocking=sum(max(0.0, task - 50) for task in seen["tasks"]),
        shift=seen["shift"],
    )


def _num_bytes(request: Request) -> int:
    """Headers and body as they travelled; a stream has no end and counts as a request only."""
    response = request.response()
    if response is None or "event-stream" in response.headers.get("content-type", ""):
        return 0
    sizes = request.sizes()
    return int(sizes["responseHeadersSize"] + sizes["responseBodySize"])
