"""``make bench-ui``: the dashboard's figures on the history of its peers, and with 50 curves and 10,000 rows.

    python -m tests.bench_ui [--rounds 5] [--points 100000] [--rows 10000] [--only-table] [--no-fail]

Prints Markdown tables, each figure beside its budget, and ends with which are missed; then the exit status is 1.
Cold loads are medians of fresh browser contexts. How smooth zooming is: ``make bench-curves``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from browser.dashboard import chromium, session_cookie, signed_in
from playwright.sync_api import Browser
from seeded import add_many_runs

from server.comparisons.service import judge_ended
from tests import bench_curves
from tests.bench_store.__main__ import machine, say
from tests.bench_store.ours import Site, site
from tests.bench_ui import behaviour
from tests.bench_ui.cold import Loads, cold
from tests.bench_ui.following import following_rows
from tests.bench_ui.history import write_history
from tests.bench_ui.table import Row, at_most, holds, markdown, summary

USER = "bench"
MOST_KB, MOST_REQUESTS, MOST_LARGEST_MS = 400, 15, 700
MOST_SHIFT = 0.1  # what Lighthouse calls good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rounds", 5), ("points", 100_000), ("rows", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only-table", action="store_true", help="leave out the 50 curves and the many rows")
    parser.add_argument("--no-fail", action="store_true", help="exit with 0 whatever is missed")
    given = parser.parse_args()
    bench_curves.hold_leases()
    say(f"{machine()}\n")
    with chromium() as browser:
        rows = same_history(browser, given.rounds)
        if not given.only_table:
            rows += heavy(browser, given.points, given.rows, given.rounds)
    say(machine())
    say(summary(rows))
    return int(not given.no_fail and any(row.met is False for row in rows))


def same_history(browser: Browser, rounds: int) -> list[Row]:
    """The table of peers: 12 runs, six metrics of 1,000 steps, 1440×900, cold."""
    with tempfile.TemporaryDirectory(prefix="ampboard-ui-") as folder, site(Path(folder) / "data") as at:
        history = write_history(at, USER)
        secret = session_cookie(at.database, USER)
        experiment = f"/experiments/{history.experiment_id}"
        pages = {"main page": "/", "experiment": experiment}
        rows = []
        for name, path in pages.items():
            rows += load_rows(name, cold(browser, at.url, secret, path, rounds))
        rows += following_rows(browser, at, secret)
        with (
            signed_in(browser, at.url, secret) as light,
            signed_in(browser, at.url, secret, dark=True) as dark,
            signed_in(browser, at.url, secret, width=390) as phone,
        ):
            page = behaviour.opened(light, experiment)
            rows += behaviour.chart_rows(page, history)
            rows.append(_name_row(page.title(), page.inner_text("h1")))
            page.close()
            rows += behaviour.address_rows(light, experiment)
            rows += behaviour.axe_rows(light, dark, pages)
            rows += behaviour.key_rows(light)
            rows += behaviour.phone_rows(phone, [*pages.values(), "/runs"])
            rows += behaviour.answer_rows(light, history)
    say("12 runs, 3 precisions × 4 seeds, 6 metrics × 1,000 steps, 1440×900, cold:\n")
    say(markdown(rows) + "\n")
    return rows


def _name_row(title: str, heading: str) -> Row:
    text = "<script>alert(1)</script>"
    return holds(
        "a hostile name of 200 characters", text in heading and title != "owned", "is text", "is markup", "is text"
    )


def load_rows(name: str, loads: Loads) -> list[Row]:
    """What one page costs when it is opened for the first time."""
    one = loads.median
    return [
        at_most(f"{name}, first / largest paint", one.largest, MOST_LARGEST_MS, "ms",
                f"first {one.first:.0f}, fastest of all {loads.best_largest:.0f}"),
        at_most(f"{name}, kB without the chart library", one.kb, MOST_KB, "kB", digits=1),
        at_most(f"{name}, requests without the chart library", one.requests, MOST_REQUESTS, ""),
        Row(what=f"{name}, kB / requests with the chart library",
            figure=f"{one.kb + one.library_kb:,.1f} / {one.requests + one.library_requests:.0f}"),
        Row(what=f"{name}, long tasks", figure=tasks(loads)),
        at_most(f"{name}, layout shift", one.shift, MOST_SHIFT, "", digits=3),
        holds(f"{name}, console and hosts", not loads.complaints and not loads.foreign, "no error, no other host",
              "; ".join([*loads.complaints, *loads.foreign])[:300], "no error, no other host"),
    ]  # fmt: skip


def tasks(loads: Loads) -> str:
    one = loads.median
    return f"{one.num_tasks:.0f}, longest {one.longest_task:.0f} ms, blocking {one.blocking:.0f} ms"


def heavy(browser: Browser, num_points: int, num_rows: int, rounds: int) -> list[Row]:
    """The same figures of a page with 50 curves and of a list of thousands of runs."""
    with tempfile.TemporaryDirectory(prefix="ampboard-ui-") as folder, site(Path(folder) / "data") as at:
        experiment_id, run_ids = bench_curves.fill(at, bench_curves.RECIPES, 10, num_points)
        secret = session_cookie(at.database, USER)
        curves = f"{len(run_ids)} curves"
        rows = load_rows(curves, cold(browser, at.url, secret, f"/experiments/{experiment_id}", rounds))
        rows.append(_sampled(browser, at, secret, experiment_id, num_points))
    with tempfile.TemporaryDirectory(prefix="ampboard-ui-") as folder, site(Path(folder) / "data") as at:
        write_history(at, USER)
        add_many_runs(at.database, num_rows)
        judge_ended(at.database)  # otherwise the server does it while its pages are measured
        secret = session_cookie(at.database, USER)
        rows += load_rows(f"{num_rows:,} rows", cold(browser, at.url, secret, "/runs", rounds))
    say(f"{curves} of {num_points:,} points, and a list of {num_rows:,} runs, 1440×900, cold:\n")
    say(markdown(rows) + "\n")
    return rows


def _sampled(browser: Browser, at: Site, secret: str, experiment_id: int, num_points: int) -> Row:
    """Whether the chart says what it left out and still has the spikes of 100."""
    with signed_in(browser, at.url, secret) as context:
        page = behaviour.opened(context, f"/experiments/{experiment_id}")
        page.locator(behaviour.LOSS).scroll_into_view_if_needed()
        page.wait_for_selector(f"{behaviour.LOSS} .main-svg")
        page.wait_for_function(
            f"""() => document.querySelector("{behaviour.LOSS} [data-plot]").data
                .flatMap((trace) => trace.y).filter((value) => value === 100).length >= 50"""
        )
        said = page.locator(f"{behaviour.LOSS} [data-note]").inner_text()
    wanted = f"of {num_points:,} points a run, extremes kept"
    return holds("extremes survive sampling, and the chart says so", wanted in said, wanted, said[:100], "kept, told")


if __name__ == "__main__":
    sys.exit(main())
