"""Starts the ranks of a run by torchrun and passes on what rank 0 says. No torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from amp_core.config import RunConfig
from amp_core.distributed.interface import address_towards, interface_of
from amp_core.errors import ProcessFailed, WorkloadError
from amp_core.events import Event, Finished, Started
from amp_core.recipe_rules import check_strategy
from amp_core.script.process import Stops, relayed

MEETING_S = 180  # how long hosts wait for each other at the rendezvous


def run_ranks(config: RunConfig, stops: Stops) -> Iterator[Event]:
    """The events of a run on several ranks, which are started now; of further hosts only its start and its end.

    Raises `RecipeError` and `WorkloadError` for what ranks cannot do, and `ProcessFailed` with a rank's failure, or
    when the hosts do not meet, or on a further host when the first one has stopped the run.
    """
    if config.kind != "train":
        raise WorkloadError(f"kind={config.kind!r} with ranks={config.ranks}: only training runs take several ranks")
    check_strategy(config.recipe, config.distribution.strategy)
    threads = max(1, (config.num_threads or config.ranks) // config.ranks)
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONSAFEPATH": "1", **_network(config)}
    heard = set[type[Event]]()
    argv, place = torchrun(config), config.distribution
    try:
        yield from relayed(
            config, argv, Path.cwd(), env, stops, "A rank", num_lines=config.ranks,
            noted=lambda event: heard.add(type(event)),
        )  # fmt: skip
    except ProcessFailed as error:
        if place.nnodes > 1 and error.kind == "exit" and Started not in heard:
            raise ProcessFailed(_not_met(config), "rendezvous") from error
        raise
    was_asked = any(stop.is_set() for stop in stops.values())
    if place.node_rank > 0 and Finished not in heard and not was_asked:  # all ranks stop after the same step
        raise ProcessFailed("The run was stopped on its first host, and so on this one.", "interrupted")


def _not_met(config: RunConfig) -> str:
    place = config.distribution
    return (
        f"The ranks of host {place.node_rank + 1} of {place.nnodes} did not meet the others at {place.rdzv_endpoint}; "
        "the log says why. That address must lead from every host to the first one, and its port must be open."
    )


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
        meeting = [  # static: the c10d backend orders hosts by the text of their addresses, not by their node rank
            f"--nnodes={given.nnodes}", f"--node-rank={given.node_rank}", "--rdzv-backend=static",
            f"--rdzv-endpoint={given.rdzv_endpoint}", f"--rdzv-id=ampboard-{config.run_id}-{config.attempt}",
            f"--rdzv-conf=timeout={MEETING_S}", f"--local-addr={_own_address(config)}",
        ]  # fmt: skip
    command = [sys.executable, "-P", "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={config.ranks}"]
    return [*command, "--max-restarts=0", "-m", "amp_core", "rank"]
