"""Starts the ranks of a run by torchrun and passes on what rank 0 says. No torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from amp_core.config import RunConfig
from amp_core.errors import WorkloadError
from amp_core.events import Event
from amp_core.recipe_rules import check_strategy
from amp_core.script.process import Stops, relayed


def run_ranks(config: RunConfig, stops: Stops) -> Iterator[Event]:
    """The events of a run on several ranks, which are started now.

    Raises `RecipeError` and `WorkloadError` for what ranks cannot do, and `ProcessFailed` with a rank's failure.
    """
    if config.kind != "train":
        raise WorkloadError(f"kind={config.kind!r} with ranks={config.ranks}: only training runs take several ranks")
    check_strategy(config.recipe, config.distribution.strategy)
    threads = max(1, (config.num_threads or config.ranks) // config.ranks)
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONSAFEPATH": "1"}
    yield from relayed(config, torchrun(config), Path.cwd(), env, stops, "A rank", num_lines=config.ranks)


def torchrun(config: RunConfig) -> list[str]:
    """The command line; several hosts meet at the rendezvous, one host needs none."""
    meeting = ["--standalone"]
    given = config.distribution
    if given.nnodes > 1:
        meeting = [
            f"--nnodes={given.nnodes}", f"--node-rank={given.node_rank}", "--rdzv-backend=c10d",
            f"--rdzv-endpoint={given.rdzv_endpoint}", f"--rdzv-id=ampboard-{config.run_id}-{config.attempt}",
        ]  # fmt: skip
    command = [sys.executable, "-P", "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={config.ranks}"]
    return [*command, "--max-restarts=0", "-m", "amp_core", "rank"]
