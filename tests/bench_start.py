"""How long a submitted run waits for its first step: `make bench-start`, warm (forked) and cold (a fresh interpreter).

A real worker on SQLite with the embedded broker, idle before each run. The run's process notes the moment in which it
computes its first loss. The load of the machine is printed with the figures, since they mean little without it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from worker_site import Site, wait_for

WORKLOAD = """
import time
from pathlib import Path
import torch
from torch import nn
from amp_core.workload import Workload


class Marked(Workload):
    '''Notes when it computes its first loss.'''

    mark: str = ""

    def model(self):
        return nn.Linear(8, 1)

    def batches(self, split, seed):
        for _ in range(4):
            yield torch.ones(4, 8), torch.ones(4, 1)

    def loss(self, model, batch):
        path = Path(self.mark)
        if not path.exists():
            path.write_text(repr(time.time()))
        return super().loss(model, batch)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warm", type=int, default=20, help="runs from a warm worker")
    parser.add_argument("--cold", type=int, default=5, help="runs from a worker without warm children")
    asked = parser.parse_args()
    print(f"{'':<6} {'submit to claim':>22} {'submit to first step':>24} {'first point stored':>22}   load")
    for name, num in (("warm", asked.warm), ("cold", asked.cold)):
        with tempfile.TemporaryDirectory(prefix="ampboard-start-") as folder, Site(Path(folder)) as site:
            site.add_workload(WORKLOAD, "marked")
            site.start_worker(AMPBOARD_WARM_CHILDREN=str(name == "warm").lower())
            _start(site, -1)  # the worker is up, its fork server warm
            starts = [_start(site, number) for number in range(num)]
        columns = [_spell([start[column] for start in starts]) for column in range(3)]
        print(f"{name:<6} {columns[0]:>22} {columns[1]:>24} {columns[2]:>22}   {os.getloadavg()[0]:.1f}", flush=True)
    return 0


def _start(site: Site, number: int) -> tuple[float, float, float]:
    """Seconds from the submission of a one-step run to its claim, its first loss, and its first point in the store."""
    mark = site.folder / f"mark{number}"
    began = time.time()
    (run_id,) = site.submit("marked", steps=1, eval_every=0, diagnose_s=0.0, params={"mark": str(mark)})
    wait_for(lambda: site.run(run_id).step >= 1, "no step", 120, site.logs)
    stored = time.time()
    run = site.await_end(run_id)
    assert run.state == "completed", run.reason
    assert run.started_at is not None
    time.sleep(0.3)
    return run.started_at.timestamp() - began, float(mark.read_text()) - began, stored - began


def _spell(seconds: list[float]) -> str:
    low, high = min(seconds), max(seconds)
    return f"{median(seconds):.2f} s ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
