"""``make test-netns``: runs over two hosts that share nothing but a wire, each a network namespace of this machine.

First two children of a run that meet there, whose losses must be bitwise those of the same run on one host; then two
workers that claim runs together from the queue (tests/namespace_queue.py). Needs root and ``ip``; where it may not make
namespaces it says so and ends with status 77.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import namespace_queue
import numpy as np
from namespaces import MayNot, Namespace, two_namespaces

from amp_core.config import Distribution, RunConfig, WorkloadRef, parse_recipe
from amp_core.events import Failed, Finished, Segment, read_frames
from amp_core.launcher import Launcher

WORKLOADS = Path(__file__).parent / "unit" / "distributed" / "rank_workloads.py"
MAY_NOT = 77


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", help=argparse.SUPPRESS)  # a run's configuration: this process is one of the hosts
    node = parser.parse_args().node
    if node is not None:
        return _be_a_host(msgspec.json.decode(node, type=RunConfig))
    try:
        with two_namespaces() as hosts:
            for host in hosts:
                assert host.is_apart(), f"the namespace {host.name} has a way out: it is none"
            with tempfile.TemporaryDirectory(prefix="ampboard-netns-") as folder:
                children = _compare(hosts, Path(folder))
            with tempfile.TemporaryDirectory(prefix="ampboard-netns-") as folder:
                return max(children, namespace_queue.compare(hosts, Path(folder)))
    except MayNot as error:
        print(f"not tested: {error}")
        return MAY_NOT


def _compare(namespaces: Sequence[Namespace], folder: Path) -> int:
    began = time.monotonic()
    endpoint = f"{namespaces[0].address}:29500"
    hosts = [
        _start(
            host.prefix,
            _config(folder / f"host{number}", ranks=1, distribution=Distribution(
                nnodes=2, node_rank=number, rdzv_endpoint=endpoint)),
        )
        for number, host in enumerate(namespaces)
    ]  # fmt: skip
    answers = [host.communicate(timeout=400)[0].strip() for host in hosts]
    took_s = time.monotonic() - began
    alone = _start([], _config(folder / "alone", ranks=2)).communicate(timeout=400)[0].strip()
    print(f"two hosts {' and '.join(host.address for host in namespaces)}, gloo, {took_s:.0f} s: losses {answers[0]}")
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
