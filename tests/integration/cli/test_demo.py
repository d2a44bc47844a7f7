"""``ampboard demo --exit`` from nothing to its verdict table, with fewer steps and one seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_demo_ends_with_a_verdict_for_each_recipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "server.cli", "demo", "--exit", "--no-browser", "--port", "0", "--steps", "4"]
    done = subprocess.run(
        [*command, "--seeds", "1"],
        cwd=ROOT,
        env=os.environ | {"AMPBOARD_DATA_DIR": str(tmp_path / "demo")},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for recipe in ("bf16-mixed", "16-mixed", "16-mixed, no scaler"):
        assert re.search(rf"^ {re.escape(recipe)} +(INCONCLUSIVE|UNSAFE) ", done.stdout, re.M), done.stdout
    assert "margin fixed at submission: 0.25 dB" in done.stdout
    assert "fp16 emulated on a CPU" in done.stdout
    assert "workload is constructed" in done.stdout
    assert re.search(r"http://127\.0\.0\.1:\d+/experiments/1", done.stdout)
    assert "6/6" in done.stderr  # four recipes, the A/A control, one benchmark
    assert (tmp_path / "demo").stat().st_mode & 0o077 == 0
