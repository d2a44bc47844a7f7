"""The training of one rank, and which of its events it tells."""

from __future__ import annotations

import contextlib
import os

import torch
import torch.distributed as dist

from amp_core.config import RunConfig
from amp_core.distributed.group import Ranks
from amp_core.distributed.training import train_rank
from amp_core.events import Failed, Finished, Started
from amp_core.loader import load
from amp_core.script.sinks import EventPipe
from amp_core.script.surroundings import ParentLine
from amp_core.setup import device_named


def run(config: RunConfig, line: ParentLine, events: EventPipe, rank: int) -> int:
    """Train to the end, or until the line asks to stop. Rank 0 tells all, the first rank of each host its two ends."""
    if config.num_threads is not None:
        torch.set_num_threads(max(1, config.num_threads // config.ranks))
    ranks = Ranks.join(device_named(config.device))
    tells_ends = os.environ["LOCAL_RANK"] == "0"  # to this host's process, which knows of no other rank
    has_finished = False
    training = train_rank(config, load(config.workload), ranks, line.cancelled.is_set, line.paused.is_set)
    for event in training:
        has_finished = has_finished or isinstance(event, Finished)
        if rank == 0 or (tells_ends and isinstance(event, Started | Finished)):
            events.send(event)
    if tells_ends and not has_finished:
        events.send(Failed(kind="interrupted", message="The run was asked to stop and stopped."))
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    return 0
