"""``python -m amp_core rank``: one rank, as torchrun starts it."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from amp_core.config import RunConfig
from amp_core.distributed.group import Ranks
from amp_core.distributed.training import train_rank
from amp_core.errors import ContractError
from amp_core.events import Failed, Finished, Started
from amp_core.failure import failure_of
from amp_core.loader import load
from amp_core.script.sinks import EventPipe
from amp_core.script.surroundings import ParentLine, surroundings
from amp_core.setup import device_named


def main() -> int:
    """Train as one rank of the run in the environment; 0 after the last step, or after stopping as asked."""
    found = surroundings()
    if found is None or "RANK" not in os.environ:
        raise ContractError("a rank is started by torchrun as part of a run: submit one with ranks above 1")
    line = ParentLine(found.line)
    events = EventPipe(found.events, lock=Path(found.events).with_name("run.json"))
    config = found.config
    if config.num_threads is not None:
        torch.set_num_threads(max(1, config.num_threads // config.ranks))
    rank = int(os.environ["RANK"])
    try:
        return _run(config, line, events, rank)
    except BaseException as error:  # noqa: BLE001 - whatever ends a rank is what the run's record must say
        failed = failure_of(error)
        message = failed.message if rank == 0 else f"Rank {rank}: {failed.message}"
        kind = "peer" if _is_of_another_rank(error) else failed.kind
        events.send(Failed(kind=kind, message=message, traceback=failed.traceback))
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the others wait in a collective: torchrun ends them


def _run(config: RunConfig, line: ParentLine, events: EventPipe, rank: int) -> int:
    device = device_named(config.device)
    ranks = Ranks.join(device)
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


def _is_of_another_rank(error: BaseException) -> bool:
    """Whether a collective failed because another rank, or the way to it, is gone: that rank has the reason."""
    if isinstance(error, dist.DistError):  # NCCL's errors, and those of the store where ranks meet
        return True
    return isinstance(error, RuntimeError) and "gloo/transport" in str(error)
