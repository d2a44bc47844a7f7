"""Runs the work in ampboard and in every peer, one after the other, and prints figures, ratios and what was aimed at.

    python -m tests.bench_store [--peers trackio,mlflow,aim,tensorboard] [--quick]

Peers live in environments of their own under ``.bench/``, which ``make bench-store`` makes. Slow peers get fewer points
where all would take too long (`SLOW`): their rates hardly depend on it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PEERS = ("trackio", "tensorboard", "mlflow", "aim")
MANY, MILLION, SINGLE = "20 metrics, 200k points", "20 metrics, 1M points", "1 metric, 200k points"
LENGTHS = [10_000, 100_000, 1_000_000]
SLOW = {  # the part of the points that a peer logs where all of them take it longer than five minutes
    "mlflow": {MILLION: 0.1, SINGLE: 0.02},
    "aim": {MANY: 0.1, MILLION: 0.02, SINGLE: 0.1},
}
SHORT = {"mlflow": LENGTHS[:2], "aim": LENGTHS[:2]}
TIMEOUT_S = 1800

Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    given = parser.parse_args()
    scale = 0.1 if given.quick else 1.0
    say(machine())
    results: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="ampboard-bench-") as folder:
        from tests.bench_store.ours import measure

        job = job_for("ampboard", scale, Path(folder))
        job["lengths"].append(int(10_000_000 * scale))
        results["ampboard"] = measure(Path(folder) / "ampboard", job)
        for peer in filter(None, given.peers.split(",")):
            say(f"… {peer}, load {os.getloadavg()[0]:.1f}")
            results[peer] = peer_figures(peer, job_for(peer, scale, Path(folder)))
    for name, rows in tables(results).items():
        say(f"\n{name}\n")
        for row in rows:
            say(row)
    say("\n" + machine())


def job_for(name: str, scale: float, folder: Path) -> dict[str, Any]:
    own = folder / name
    if name != "ampboard":
        own.mkdir()
    parts = SLOW.get(name, {})
    return {
        "folder": str(own),
        "logging": [
            [case, int(num_steps * scale * parts.get(case, 1.0)), num_metrics]
            for case, num_steps, num_metrics in ((MANY, 10_000, 20), (MILLION, 50_000, 20), (SINGLE, 200_000, 1))
        ],
        "lengths": [int(length * scale) for length in SHORT.get(name, LENGTHS)],
        "runs": int((10_000 if name == "ampboard" else 2_000) * scale),
    }


def peer_figures(peer: str, job: dict[str, Any]) -> Figures:
    """What a peer measured of itself; an error is told and leaves it out of the tables."""
    python = ROOT / ".bench" / peer / "bin" / "python"
    if not python.exists():
        say(f"  {python.relative_to(ROOT)} is not there: make bench-store installs it")
        return {}
    environment = {"PATH": os.environ["PATH"], "HOME": job["folder"], "GIT_PYTHON_REFRESH": "quiet"}
    command = [str(python), f"peer_{peer}.py", json.dumps(job)]
    try:
        done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        say(f"  {peer} took longer than {TIMEOUT_S} s")
        return {}
    for line in done.stdout.splitlines():
        if line.startswith("FIGURES "):
            return dict(json.loads(line.removeprefix("FIGURES ")))
    say(f"  {peer} failed: {' | '.join(done.stderr.strip().splitlines()[-3:])}")
    return {}


def tables(results: dict[str, Figures]) -> dict[str, list[str]]:
    """Every figure with its ratio to ours: how many times faster, cheaper or smaller we are."""
    ours = results["ampboard"]
    shown: dict[str, list[str]] = {}
    for title, key, field, is_rate in (
        *(("Logging, points/s until durable", name, "points_per_s", True) for name in (MANY, MILLION, SINGLE)),
        *(("Cost of one call of log, µs, median", name, "p50_us", False) for name in (MANY, MILLION, SINGLE)),
        *(("Cost of one call of log, µs, 99th percentile", name, "p99_us", False) for name in (MANY, MILLION, SINGLE)),
        *(("Bytes on disk per point", name, "bytes_per_point", False) for name in (MANY, MILLION, SINGLE)),
        *(("Reading a whole series, ms", name, "whole_ms", False) for name in reads(ours)),
        *(("A view of 2,000 points, ms", name, "view_ms", False) for name in reads(ours)),
        ("Runs filtered by metric and parameter, ms", "runs", "search_ms", False),
    ):
        if field not in ours.get(key, {}):
            continue
        mine = ours[key][field]
        cells = [f"ampboard {mine:,.1f}"]
        for peer, figures in results.items():
            if peer != "ampboard" and field in figures.get(key, {}):
                theirs = figures[key][field]
                ratio = mine / theirs if is_rate else theirs / max(mine, 1e-9)
                cells.append(f"{peer} {theirs:,.1f} ({ratio:,.1f}×)")
        shown.setdefault(title, []).append(f"  {key:<26}" + "   ".join(cells))
    extra = [
        f"  {name:<26}" + "   ".join(f"{key} {value:,.1f}" for key, value in ours[name].items()) for name in reads(ours)
    ]
    extra.append(
        "  runs                      " + "   ".join(f"{key} {value:,.1f}" for key, value in ours["runs"].items())
    )
    shown["ampboard in full (HTTP; whole: raw arrays, whole_json: JSON, again: 304, zoom: a window within)"] = extra
    return shown


def reads(figures: Figures) -> list[str]:
    return [name for name in figures if name.startswith("read ")]


def machine() -> str:
    """When and on what, because a figure without it says nothing."""
    model = next((line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")), "unknown CPU")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    python = sys.version.split()[0]
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, {model}, load {load}, Python {python}"


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
