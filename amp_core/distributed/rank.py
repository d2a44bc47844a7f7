"""``python -m amp_core rank``: one rank, as torchrun starts it. It listens to its parent before torch is imported."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from amp_core.errors import ContractError
from amp_core.events import Failed
from amp_core.failure import failure_of
from amp_core.script.surroundings import ParentLine, surroundings


def main() -> int:
    """Train as one rank of the run in the environment; 0 after the last step, or after stopping as asked."""
    found = surroundings()
    if found is None or "RANK" not in os.environ:
        raise ContractError("a rank is started by torchrun as part of a run: submit one with ranks above 1")
    line = ParentLine(found.line)
    from amp_core.script.sinks import EventPipe

    events = EventPipe(found.events, lock=Path(found.events).with_name("run.json"))
    rank = int(os.environ["RANK"])
    try:
        from amp_core.distributed.rank_training import run

        return run(found.config, line, events, rank)
    except BaseException as error:  # noqa: BLE001 - whatever ends a rank is what the run's record must say
        failed = failure_of(error)
        message = failed.message if rank == 0 else f"Rank {rank}: {failed.message}"
        kind = "peer" if _is_of_another_rank(error) else failed.kind
        events.send(Failed(kind=kind, message=message, traceback=failed.traceback))
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the others wait in a collective: torchrun ends them


def _is_of_another_rank(error: BaseException) -> bool:
    """Whether a collective failed because another rank, or the way to it, is gone: that rank has the reason."""
    import torch.distributed as dist

    if isinstance(error, dist.DistError):  # NCCL's errors, and those of the store where ranks meet
        return True
    return isinstance(error, RuntimeError) and "gloo/transport" in str(error)
