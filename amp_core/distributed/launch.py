"""Starts the ranks of a run by torchrun and passes on what rank 0 says. No torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from amp_core.config import RunConfig
from amp_core.distributed.interface import address_towards, interface_of
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
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONSAFEPATH": "1", **_network(config)}
    yield from relayed(config, torchrun(config), Path.cwd(), env, stops, "A rank", num_lines=config.ranks)


def _own_address(config: RunConfig) -> str:
    endpoint = config.distribution.rdzv_endpoint
    try:
        return address_towards(endpoint)
    except (OSError, ValueError) as error:
        raise WorkloadError(
            f"rdzv_endpoint={endpoint!r} cannot be reached from this host ({error}): name the first host's address as "
            "the others see it, and a free port, such as 10.0.0.5:29500"
        ) from error


def _network(config: RunConfig) -> dict[str, str]:
    """Between hosts the libraries must take the interface that leads there; by the host's name they guess wrongly."""
    if config.distribution.nnodes == 1:
        return {}
    interface = interface_of(_own_address(config))
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return {name: interface for name in names if interface is not None and name not in os.environ}


def torchrun(config: RunConfig) -> list[str]:
    """The command line; several hosts meet at the rendezvous, one host needs none."""
    meeting = ["--standalone"]
    given = config.distribution
    if given.nnodes > 1:
        meeting = [
            f"--nnodes={given.nnodes}", f"--node-rank={given.node_rank}", "--rdzv-backend=c10d",
            f"--rdzv-endpoint={given.rdzv_endpoint}", f"--rdzv-id=ampboard-{config.run_id}-{config.attempt}",
            f"--rdzv-conf=is_host={int(given.node_rank == 0)}", f"--local-addr={_own_address(config)}",
        ]  # fmt: skip
    command = [sys.executable, "-P", "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={config.ranks}"]
    return [*command, "--max-restarts=0", "-m", "amp_core", "rank"]
