"""``ampboard up`` and the commands against it: real processes, the embedded database and broker, a real worker."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
WORKLOAD = '''
import torch
from torch import nn
from amp_core import Workload

class TinyLine(Workload):
    """A line through points; small enough to train within a second."""
    slope: float = 2.0
    steps = 12
    def model(self):
        return nn.Linear(4, 1)
    def batches(self, split, seed):
        generator = torch.Generator().manual_seed(seed if split == "train" else 12345)
        for _ in range(4):
            x = torch.randn(16, 4, generator=generator)
            yield x, self.slope * x.sum(1, keepdim=True)
'''


def first_code_block(document: Path) -> str:
    block = re.search(r"^```python\n(.*?)^```", document.read_text(), re.S | re.M)
    assert block
    return block[1]


class Up:
    """A running ``ampboard up``, and the command line against it."""

    def __init__(self, data_dir: Path, workloads: Path) -> None:
        self.data_dir = data_dir
        self.environment = os.environ | {
            "AMPBOARD_DATA_DIR": str(data_dir),
            "AMPBOARD_WORKLOADS": str(workloads),
            "AMPBOARD_HEARTBEAT_S": "0.5",
            "AMPBOARD_LEASE_S": "3",
            "AMPBOARD_SWEEP_S": "0.5",
        }
        command = [sys.executable, "-m", "server.cli", "up", "--port", "0", "--no-browser"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.printed = self._read_greeting()
        found = re.search(r"runs at\s+(http://\S+)", self.printed)
        assert found, self.printed
        self.url = found[1]

    def _read_greeting(self) -> str:
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            if "stop with Ctrl-C" in line:
                return "".join(lines)
        raise AssertionError("ampboard up ended early:\n" + "".join(lines))

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "server.cli", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=120)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def descendants(self) -> list[psutil.Process]:
        """Every process that belongs to this installation, the guard and the broker included."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [process for process in found if process.is_running()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)


def ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").is_success
    except httpx.TransportError:
        return False


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def workloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workloads")
    (folder / "tiny_line.py").write_text(WORKLOAD)
    (folder / "wine.py").write_text(first_code_block(ROOT / "README.md"))
    (folder / "broken.py").write_text("raise RuntimeError('on purpose')  # no Workload comes of it\n")
    return folder


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, workloads: Path) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"), workloads)
    try:
        until(lambda: "tiny-line" in running.run("workloads").stdout)
        yield running
    finally:
        if running.process.poll() is None:
            running.stop()


def test_the_sign_in_link_opens_a_page_and_is_in_no_log(up: Up) -> None:
    link = re.search(r"http://\S+/signin\?token=(\S+)", up.printed)
    assert link
    page = httpx.get(link[0], headers={"Accept": "text/html"})
    assert page.status_code == 200
    for log in (up.data_dir / "logs").iterdir():
        assert link[1] not in log.read_text()
        assert (up.data_dir / "local.token").read_text().strip() not in log.read_text()


def test_submit_watch_compare_and_lists_agree(up: Up) -> None:
    done = up.run(
        "submit", "tiny-line", "-r", "fp32", "-r", "bf16", "--seeds", "3", "-p", "slope=3", "--no-gain", "--no-control",
        "--name", "by the command line", "--wait", "--exit-code", check=False,
    )  # fmt: skip
    assert done.returncode in {0, 10, 11, 12}, done.stdout + done.stderr
    number = json.loads(up.run("experiments", "--json").stdout)["items"][0]["id"]

    compared = up.run("compare", str(number), "--json", "--exit-code", check=False)
    comparison = json.loads(compared.stdout)
    assert compared.returncode == done.returncode
    assert comparison["state"] == "judged"
    assert comparison["headline"] in done.stdout
    assert comparison["recipes"][0]["verdict"] in up.run("compare", str(number)).stdout
    assert "bf16-mixed" in up.run("compare", str(number), "--markdown").stdout

    watched = up.run("watch", str(number)).stdout
    assert comparison["headline"] in watched
    runs = json.loads(up.run("runs", "--experiment", str(number), "--json").stdout)["items"]
    assert [run["state"] for run in runs] == ["completed"] * 6
    assert "bf16-mixed, seed 2" in up.run("runs", "--experiment", str(number)).stdout
    assert "by the command line" in up.run("experiments").stdout


def test_the_workload_of_the_readme_reaches_its_verdict(up: Up) -> None:
    assert first_code_block(ROOT / "README.md") == first_code_block(ROOT / "docs" / "workloads.md")
    done = up.run(
        "submit", "wine-classifier", "-r", "fp32", "-r", "bf16", "--seeds", "3", "-p", "width=32", "--steps", "60",
        "--no-gain", "--no-control", "--wait",
    )  # fmt: skip
    assert re.search(r"bf16-mixed\s+(SAFE|INCONCLUSIVE)", done.stdout), done.stdout


def test_a_refusal_names_value_rule_and_remedy(up: Up) -> None:
    unknown = up.run("submit", "no-such-thing", "-r", "fp32", "-r", "bf16", check=False)
    assert unknown.returncode == 1
    assert "workload='no-such-thing'" in unknown.stderr
    wrong = up.run("submit", "tiny-line", "-r", "fp32", "-r", "fp12", "-p", "slope=steep", check=False)
    assert "fp12" in wrong.stderr
    assert "params.slope='steep'" in wrong.stderr


def test_a_broken_workload_is_listed_with_its_error(up: Up) -> None:
    assert re.search(r"broken.*on purpose", up.run("workloads").stdout)


def test_cancel_ends_an_experiment(up: Up) -> None:
    submitted = up.run("submit", "tiny-line", "-r", "fp32", "-r", "bf16", "--steps", "100000", "--no-gain").stdout
    number = re.search(r"experiment (\d+)", submitted)
    assert number
    up.run("cancel", number[1])

    def cancelled() -> bool:
        items = json.loads(up.run("experiments", "--json").stdout)["items"]
        return next(item for item in items if item["id"] == int(number[1]))["state"] == "cancelled"

    until(cancelled)
    watched = up.run("watch", number[1], check=False)
    assert watched.returncode == 1
    assert "was cancelled" in watched.stderr


def test_people_and_tokens(up: Up) -> None:
    added = up.run("user", "add", "grace", "--role", "viewer").stdout
    assert f"{up.url}/signin?token=" in added
    assert re.search(r"grace\s+viewer", up.run("user", "list").stdout)
    assert "taken" in up.run("user", "add", "grace", check=False).stderr
    secret = up.run("token", "create", "grace", "--name", "notebook").stdout.strip()
    reading = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(f"{up.url}/api/v1/runs", headers=reading).status_code == 200
    assert httpx.post(f"{up.url}/api/v1/experiments", headers=reading, json={}).status_code == 403
    listed = up.run("token", "list").stdout
    assert secret not in listed
    number = re.search(r"(\d+)\s+grace\s+notebook", listed)
    assert number
    up.run("token", "revoke", number[1])
    assert httpx.get(f"{up.url}/api/v1/runs", headers=reading).status_code == 401


def test_a_second_start_on_the_same_folder_is_refused(up: Up) -> None:
    second = up.run("up", "--port", "0", "--no-browser", check=False)
    assert second.returncode == 1
    assert f"process id {up.process.pid} at {up.url}" in second.stderr


def test_a_taken_port_is_refused_with_a_free_one(up: Up, tmp_path: Path) -> None:
    port = up.url.rsplit(":", 1)[1]
    refused = up.run("up", "--port", port, "--data-dir", str(tmp_path / "other"), "--no-browser", check=False)
    assert refused.returncode == 1
    free = re.search(rf"port {port} on 127\.0\.0\.1 is taken.*--port (\d+)", refused.stderr)
    assert free
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", int(free[1])))


def test_killed_processes_come_back(up: Up) -> None:
    def pid_of(part: str) -> int | None:
        for process in up.descendants():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if part in " ".join(process.cmdline()):
                    return process.pid
        return None

    for part in ("server.cli server", "-m worker", "valkey"):
        before = pid_of(part)
        assert before is not None, part
        os.kill(before, signal.SIGKILL)
        until(lambda part=part, before=before: pid_of(part) not in (None, before))
    until(lambda: ready(up.url))
    up.run("submit", "tiny-line", "-r", "fp32", "-r", "bf16", "--seeds", "1", "--no-gain", "--no-control", "--wait")


def test_ctrl_c_stops_everything_within_seconds(tmp_path: Path, workloads: Path) -> None:
    running = Up(tmp_path / "stop", workloads)
    processes = running.descendants()
    assert len(processes) >= 4  # guard, broker, server, worker
    begin = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - begin < 25  # calm machines take about 6
    until(lambda: all(map(gone, processes)), 20)
    assert not (tmp_path / "stop" / "local.url").exists()


def test_kill_9_of_the_supervisor_leaves_no_orphan(tmp_path: Path, workloads: Path) -> None:
    running = Up(tmp_path / "kill", workloads)
    processes = running.descendants()
    running.process.kill()
    running.process.wait()
    assert running.process.stdout is not None
    running.process.stdout.close()
    until(lambda: all(map(gone, processes)), 60)
    again = Up(tmp_path / "kill", workloads)
    assert again.stop() == 0
