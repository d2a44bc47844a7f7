"""The main job in a browser, against the real stack: sign in, submit by form, see points arrive, read the verdict."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dashboard import complaints_of, wait_for_charts
from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
START_S, VERDICT_S = 120, 300

WORKLOAD = '''
import time
import torch
from torch import nn
from amp_core.workload import Metric, Workload, param


class TinyRegression(Workload):
    """Fits a line; slow on purpose, so that a person can watch."""

    title = "Tiny regression"
    primary = Metric("loss", False, 0.5, relative=True)
    steps = 40
    recipes = ("32-true", "bf16-mixed")
    pause_s: float = param(0.15, min=0, max=1, help="seconds per batch")

    def model(self):
        return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))

    def batches(self, split, seed):
        generator = torch.Generator().manual_seed(seed if split == "train" else 1)
        for _ in range(10 if split == "train" else 1):
            if split == "train":
                time.sleep(self.pause_s)
            x = torch.randn(64, 4, generator=generator)
            yield x, x.sum(1, keepdim=True) + 0.1 * torch.randn(64, 1, generator=generator)
'''


@contextmanager
def stack(folder: Path) -> Iterator[str]:
    """`ampboard up` in a process of its own; yields the one-time sign-in link it prints."""
    workloads = folder / "workloads"
    workloads.mkdir()
    (workloads / "tiny_regression.py").write_text(WORKLOAD)
    environment = os.environ | {
        "AMPBOARD_DATA_DIR": str(folder / "data"),
        "AMPBOARD_WORKLOADS": str(workloads),
        "PYTHONUNBUFFERED": "1",
    }
    log = (folder / "up.log").open("w")
    command = [sys.executable, "-m", "server.cli", "up", "--port", "0", "--no-browser"]
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield sign_in_link(process, folder / "up.log")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        log.close()


def sign_in_link(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = re.search(r"http://\S+/signin\?token=\S+", log.read_text())
        if found:
            return found.group()
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    raise AssertionError(f"no sign-in link within {START_S} s:\n{log.read_text()}")


def new_context(browser: Browser, link: str) -> BrowserContext:
    """A tall window, so that every chart is in view."""
    base = link.split("/signin")[0]
    return browser.new_context(base_url=base, viewport={"width": 1440, "height": 2400})


def num_points(page: Page) -> int:
    """How many points the loss chart holds now."""
    script = """() => {
        const data = document.querySelector("[data-chart='loss'] [data-plot]").data ?? [];
        return data.reduce((sum, trace) => sum + (trace.y ?? []).filter((y) => y !== null).length, 0);
    }"""
    return int(page.evaluate(script))


def verdict_of(page: Page) -> list[str]:
    return [
        page.inner_text(".headline"),
        *page.locator(".verdict .badge").all_inner_texts(),
        *page.locator(".verdict .says").all_inner_texts(),
    ]


def test_the_main_job(browser: Browser, tmp_path: Path) -> None:
    with stack(tmp_path) as link, new_context(browser, link) as context:
        page = context.new_page()
        complaints = complaints_of(page)
        page.goto(link)
        page.click("button:has-text('Sign in')")
        page.click("text=New experiment")
        page.click("nav >> text=Tiny regression")
        page.fill("#name", "Watched by a test")
        page.fill("#seeds", "3")
        page.click("text=Submit experiment")
        page.wait_for_url(lambda url: "/new" not in url)
        page.evaluate("window.neverReloaded = true")

        page.wait_for_selector("[data-chart='loss'] .main-svg", timeout=VERDICT_S * 1000)
        first = num_points(page)
        page.wait_for_function(
            f"""() => (document.querySelector("[data-chart='loss'] [data-plot]").data ?? [])
                .reduce((sum, trace) => sum + trace.y.filter((y) => y !== null).length, 0) > {first}""",
            timeout=VERDICT_S * 1000,
        )
        assert page.inner_text("[data-live]") == "live"

        page.wait_for_selector(".verdict .badge:has-text('SAFE')", timeout=VERDICT_S * 1000)
        page.wait_for_selector("[data-live][data-state=done]")
        assert page.evaluate("window.neverReloaded") is True
        wait_for_charts(page)
        seen, points = verdict_of(page), num_points(page)
        assert seen[1] in ("SAFE", "SAFE WITH CAUTION", "UNSAFE")

        page.reload()
        wait_for_charts(page)
        page.wait_for_function("() => document.querySelector(\"[data-chart='loss'] [data-plot]\").data")
        assert verdict_of(page) == seen
        assert num_points(page) == points

        told = context.request.get(f"/api/v1/experiments/{page.url.rsplit('/', 1)[1]}/comparison")
        assert told.json()["headline"] == seen[0]
        for path in ("/", "/experiments", "/workers", "/workloads", "/account", "/help", "/runs/1"):
            page.goto(path)
            page.wait_for_timeout(300)
        assert complaints == []
