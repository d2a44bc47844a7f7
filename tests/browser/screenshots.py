"""Screenshots of every page, light, dark and at phone width, of a seeded history.

python tests/browser/screenshots.py [FOLDER] [PAGE …]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from dashboard import chromium, complaints_of, served, session_cookie, signed_in
from playwright.sync_api import BrowserContext
from seed import write_history

from server.settings import Settings

PAGES = {
    "home": "/",
    "experiments": "/experiments",
    "experiments-none": "/experiments?q=nothing-like-this",
    "experiments-grouped": "/experiments?group=workload",
    "runs": "/runs?state=completed",
    "runs-grouped": "/runs?group=recipe&open=16-mixed",
    "runs-wrong-word": "/runs?q=recipe:fp16+staus:failed",
    "new": "/experiments/new",
    "experiment-denoiser": "/experiments/3",
    "experiment-digits": "/experiments/1",
    "experiment-hostile": "/experiments/2",
    "experiment-running": "/experiments/4",
    "experiment-queued": "/experiments/5",
    "run": "/runs/1",
    "run-running": "/runs?running",
    "run-nan": "/runs?nan",
    "run-dead": "/runs?dead",
    "run-benchmark": "/runs?benchmark",
    "compare": "/compare?runs=1,2,3",
    "compare-difference": "/compare?runs=1,2,3&minus=1",
    "compare-none": "/compare",
    "trends": "/trends?workload=digits-cnn",
    "devices": "/devices?workload=digits-cnn",
    "batch-size": "/batch-size?workload=digits-cnn",
    "reports": "/reports",
    "report-new": "/reports/new",
    "team": "/team",
    "audit": "/audit",
    "workers": "/workers",
    "workloads": "/workloads",
    "account": "/account",
    "notifications": "/notifications",
    "help": "/help",
    "not-found": "/experiments/999",
}
LOOKS = {"light": (False, 1440), "dark": (True, 1440), "phone": (False, 390)}


def main(folder: Path, only: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data_dir:
        settings = Settings(data_dir=Path(data_dir), lease_s=60 * 86400, heartbeat_s=3)
        history = write_history(settings)
        with served(settings, history.database) as base, chromium() as browser:
            secret = session_cookie(history.database)
            for look, (dark, width) in LOOKS.items():
                with signed_in(browser, base, secret, dark=dark, width=width) as context:
                    shoot(context, folder, look, only)
                with browser.new_context(base_url=base, color_scheme="dark" if dark else "light") as stranger:
                    shoot_one(stranger, "/signin", folder / f"signin-{look}.png")


def shoot(context: BrowserContext, folder: Path, look: str, only: list[str]) -> None:
    runs = context.request.get("/api/v1/runs?limit=200").json()["items"]
    special = {
        "/runs?running": next(run["id"] for run in runs if run["state"] == "running"),
        "/runs?nan": next(run["id"] for run in runs if run["recipe_name"] == "16-mixed" and run["experiment_id"] == 2),
        "/runs?dead": next(run["id"] for run in runs if run["recipe_name"] == "16-mixed, no scaler"),
        "/runs?benchmark": next(
            run["id"] for run in runs if run["kind"] == "benchmark" and run["state"] == "completed"
        ),
    }
    for name, path in PAGES.items():
        if not only or name in only:
            path = f"/runs/{special[path]}" if path in special else path
            shoot_one(context, path, folder / f"{name}-{look}.png")


def shoot_one(context: BrowserContext, path: str, file: Path) -> None:
    page = context.new_page()
    complaints = complaints_of(page)
    page.goto(path)
    page.wait_for_timeout(700)
    height = min(page.evaluate("document.documentElement.scrollHeight"), 12000)
    page.set_viewport_size({"width": page.viewport_size["width"], "height": height})  # brings every chart into view
    page.wait_for_timeout(1500 if page.query_selector("[data-chart]") else 200)
    page.screenshot(path=file)
    expected = [line for line in complaints if "404" not in line]
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    sys.stdout.write(
        f"{file.name}: {height} px{f', {overflow} px too wide' if overflow > 0 else ''} {expected or ''}\n"
    )
    page.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("screenshots")
    main(target, sys.argv[2:])
