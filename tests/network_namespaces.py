"""``make test-netns``: a run over two hosts that share nothing but a wire, each a network namespace of this machine.

Needs root and ``ip``; says so where it may not make namespaces, and ends with status 77. The losses must be those of
the same run on one host.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np

from amp_core.config import Distribution, RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Failed, Finished, Segment, read_frames
from amp_core.launcher import Launcher

WORKLOADS = Path(__file__).parent / "unit" / "distributed" / "rank_workloads.py"
ADDRESSES = ("10.213.77.1", "10.213.77.2")
MAY_NOT = 77


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", help=argparse.SUPPRESS)  # a run's configuration: this process is one of the hosts
    node = parser.parse_args().node
    if node is not None:
        return _be_a_host(msgspec.json.decode(node, type=RunConfig))
    names = [f"ampboard{os.getpid()}{letter}" for letter in "ab"]
    refusal = _connect(names)
    try:
        if refusal is not None:
            print(f"not tested: {refusal}")
            return MAY_NOT
        with tempfile.TemporaryDirectory(prefix="ampboard-netns-") as folder:
            return _compare(names, Path(folder))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _connect(names: list[str]) -> str | None:
    """Make two namespaces with a wire between them; why that cannot be, or None."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and the program ip (package iproute2)"
    wires = [f"amp{os.getpid() % 100000}{letter}" for letter in "ab"]
    commands = [["netns", "add", name] for name in names]
    commands.append(["link", "add", wires[0], "type", "veth", "peer", "name", wires[1]])
    for name, wire, address in zip(names, wires, ADDRESSES, strict=True):
        commands.append(["link", "set", wire, "netns", name])
        commands.append(["-n", name, "addr", "add", f"{address}/24", "dev", wire])
        commands += [["-n", name, "link", "set", device, "up"] for device in (wire, "lo")]
    for command in commands:
        done = subprocess.run(["ip", *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"ip {' '.join(command)}: {done.stderr.strip()}"
    return None


def _compare(names: list[str], folder: Path) -> int:
    unreachable = subprocess.run(
        ["ip", "netns", "exec", names[0], "ip", "route", "get", "1.1.1.1"], capture_output=True, check=False
    )
    assert unreachable.returncode != 0, "the namespace has a way out: it is none"
    began = time.monotonic()
    endpoint = f"{ADDRESSES[0]}:29500"
    hosts = [
        _start(
            ["ip", "netns", "exec", name],
            _config(folder / f"host{number}", ranks=1, distribution=Distribution(
                nnodes=2, node_rank=number, rdzv_endpoint=endpoint)),
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    answers = [host.communicate(timeout=400)[0].strip() for host in hosts]
    took_s = time.monotonic() - began
    alone = _start([], _config(folder / "alone", ranks=2)).communicate(timeout=400)[0].strip()
    print(f"two hosts {ADDRESSES[0]} and {ADDRESSES[1]}, gloo, {took_s:.0f} s: losses {answers[0]}")
    print(f"the second host says: {answers[1]}")
    print(f"two ranks on one host:                        losses {alone}")
    passed = answers[0] == alone != "" and answers[1] == "[]" and all(host.returncode == 0 for host in hosts)
    print("passed: bitwise the same" if passed else "FAILED")
    return 0 if passed else 1


def _config(scratch: Path, **fields: object) -> RunConfig:
    given = {"run_id": 1, "attempt": 1, "workload": WorkloadRef(name="blocks", path=str(WORKLOADS)), "seed": 3,
             "recipe": parse_recipe("32-true"), "steps": 12, "num_threads": 1, "scratch_dir": str(scratch)}  # fmt: skip
    return RunConfig(**{**given, **fields})  # type: ignore[arg-type]


def _start(prefix: list[str], config: RunConfig) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, __file__, "--node", msgspec.json.encode(config).decode()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _be_a_host(config: RunConfig) -> int:
    """Run the child as a worker does, and print its losses."""
    losses: list[float] = []
    last: object = None
    with Launcher(warm=False) as launcher:
        child = launcher.launch(config)
        for frame in read_frames(child.events):
            last = frame.event
            if isinstance(last, Segment):
                columns = [column for column in last.columns if column.name == "train/loss"]
                losses += [float(value) for column in columns for value in np.frombuffer(column.values, "<f8")]
        if not isinstance(last, Finished):
            reason = last.message if isinstance(last, Failed) else last
            sys.stderr.write(f"{reason}\n{child.log.read().decode(errors='replace')[-3000:]}\n")
    print(losses)
    return 0 if isinstance(last, Finished) else 1


if __name__ == "__main__":
    sys.exit(main())
