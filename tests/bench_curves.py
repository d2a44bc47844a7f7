"""``make bench-curves``: how smooth an experiment's page is with 50 curves of a million points each, in Chromium.

    python -m tests.bench_curves [--recipes 5] [--seeds 10] [--points 1000000] [--live 20]

Prints the browser's long tasks (over 50 ms, when a page answers nobody) and the time between frames: while the page
opens, while somebody zooms in until every stored point is drawn, and while every run writes a point a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from browser.dashboard import chromium, complaints_of, session_cookie, signed_in, wait_for_charts
from playwright.sync_api import Page
from sqlalchemy import select, update

from amp_core import events
from server.access import Principal
from server.db.tables import Run, User
from server.metrics.codec import Points
from server.metrics.write import store_arrivals, store_frames
from server.tracking import service
from server.tracking.schemas import TrackedRunIn
from tests.bench_store.__main__ import machine, say
from tests.bench_store.ours import Site, site

RECIPES = ["32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true"]
SERIES = "train/loss"
MOST_POINTS = 2000  # of a curve in the browser
CHART = '[data-chart="loss"]'
WATCH = """
window.longTasks = []; window.frames_ = [];
new PerformanceObserver((list) => { for (const entry of list.getEntries()) window.longTasks.push(entry.duration); })
  .observe({ type: "longtask", buffered: true });
let last = performance.now();
const frame = (now) => { window.frames_.push(now - last); last = now; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
"""
DRAWN = f"""() => {{
  const plot = document.querySelector('{CHART} [data-plot]');
  return (plot.data ?? []).filter((trace) => trace.text?.length).map((trace) => {{
    const gaps = trace.x.filter((step) => step === null).length;
    return [trace.x.length - gaps, gaps];
  }});
}}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("recipes", 5), ("seeds", 10), ("points", 1_000_000), ("live", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    hold_leases()
    say(machine())
    with tempfile.TemporaryDirectory(prefix="ampboard-curves-") as folder, site(Path(folder) / "data") as at:
        experiment_id, run_ids = fill(at, RECIPES[: given.recipes], given.seeds, given.points)
        say(f"{len(run_ids)} curves of {given.points:,} points")
        with chromium() as browser:
            context = signed_in(browser, at.url, session_cookie(at.database, "bench"))
            context.add_init_script(WATCH)
            page = context.new_page()
            complaints = complaints_of(page)
            opened(page, experiment_id)
            zoomed(page)
            live(page, at, run_ids, given.points, given.live)
            assert not complaints, complaints
    say(machine())


def hold_leases() -> None:
    """No worker renews the leases of made-up runs: servers of this process's benches leave them alone for a day."""
    os.environ.setdefault("AMPBOARD_LEASE_S", "86400")


def fill(at: Site, recipes: list[str], num_seeds: int, num_points: int) -> tuple[int, list[int]]:
    """Running runs of one experiment, each with a loss that is noisy and has spikes."""
    run_ids = []
    with at.database.read() as session:
        user = session.scalars(select(User).where(User.name == "bench")).one()
    principal = Principal(user_id=user.id, name=user.name, role="admin", via="token")
    for recipe in recipes:
        for seed in range(num_seeds):
            body = TrackedRunIn(experiment="curves", recipe=recipe, seed=seed, steps=num_points)
            with at.database.write() as session:
                run = service.begin(session, body, principal)
                run.lease_expires_at = datetime.now(UTC) + timedelta(days=1)
                run_ids.append(run.id)
            with at.database.write() as session:
                store_arrivals(session, run.id, 1, [(1, {SERIES: curve(len(run_ids), num_points)})], folds=True)
                session.execute(update(Run).where(Run.id == run.id).values(step=num_points))
    return run.experiment_id, run_ids


def curve(seed: int, num_points: int) -> Points:
    rng = np.random.default_rng(seed)
    steps = np.arange(1, num_points + 1)
    values = 2 / (1 + steps / 5000) + 0.05 * rng.standard_normal(num_points) + 0.01 * seed
    values[rng.integers(0, num_points, num_points // 10_000)] = 100.0
    return Points(steps=steps, values=values.astype("<f4").astype("<f8"), times=1.7e9 + steps * 0.01)


def opened(page: Page, experiment_id: int) -> None:
    def act() -> None:
        page.goto(f"/experiments/{experiment_id}")
        if not page.locator(CHART).count():
            raise AssertionError(page.url + page.locator("body").inner_text()[:500])
        page.locator(CHART).scroll_into_view_if_needed()
        page.wait_for_selector(f"{CHART} .main-svg")
        wait_for_charts(page)

    measured(page, "opening the page, to the last chart drawn", act)
    told(page)


def zoomed(page: Page) -> None:
    """Drag over a twelfth of the chart, again and again, until nothing is thinned any more."""
    for number in range(1, 7):
        measured(page, f"zoom {number}", lambda: drag(page))
        told(page)
        if "extremes kept" not in page.locator(f"{CHART} [data-note]").inner_text():
            say("  every stored point of the window is drawn")
            break
    else:
        raise AssertionError("six zooms did not reach the exact points")
    measured(page, "double click, back to the whole", lambda: page.locator(f"{CHART} .nsewdrag").first.dblclick())


def drag(page: Page) -> None:
    box = page.locator(f"{CHART} .nsewdrag").first.bounding_box()
    assert box is not None
    x, y = box["x"] + 0.45 * box["width"], box["y"] + box["height"] / 2
    with page.expect_response(lambda response: "/points?" in response.url):
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + box["width"] / 12, y + 2, steps=8)
        page.mouse.up()


def live(page: Page, at: Site, run_ids: list[int], num_points: int, seconds: int) -> None:
    """Every run writes a point a second while the page follows."""

    def write() -> None:
        for second in range(1, seconds + 1):
            begin = time.time()
            for run_id in run_ids:
                point = {"steps": np.array([num_points + second], "<i8").tobytes()}
                point |= {key: np.array([value], "<f8").tobytes() for key, value in (("values", 0.1), ("times", begin))}
                segment = events.Segment(columns=[events.Column(name=SERIES, **point)])
                with at.database.write() as session:
                    store_frames(session, run_id, 1, [events.Frame(sequence=1 + second, at=begin, event=segment)])
            time.sleep(max(0.0, 1 - (time.time() - begin)))

    def act() -> None:
        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            page.wait_for_timeout(200)

    measured(page, f"{len(run_ids)} runs writing a point a second, {seconds} s", act)


def measured(page: Page, what: str, act: Callable[[], Any]) -> None:
    """Print how long it took, the long tasks in it and the frames."""
    clear = "() => { window.longTasks = []; window.frames_ = []; }"
    if page.url.startswith("http"):
        page.evaluate(clear)
    begin = time.perf_counter()
    act()
    took = time.perf_counter() - begin
    page.wait_for_timeout(1500)  # drawing goes on after the answer
    tasks, frames = page.evaluate("() => [window.longTasks, window.frames_]")
    slow = sorted(frames)[int(len(frames) * 0.99)] if frames else 0.0
    say(
        f"  {what}: {took:.2f} s; {len(tasks)} long tasks, longest {max(tasks, default=0):.0f} ms, together "
        f"{sum(tasks):.0f} ms; frames median {statistics.median(frames or [0]):.0f} ms, 99th percentile {slow:.0f} ms"
    )


def told(page: Page) -> None:
    drawn = page.evaluate(DRAWN)
    most = max(points / max(1, curves) for points, curves in drawn)
    assert most <= MOST_POINTS, f"{most} points a curve"
    say(f"    {sum(curves for _, curves in drawn)} curves, at most {most:.0f} points each")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    sys.exit(main())
