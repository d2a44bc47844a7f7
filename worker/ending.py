"""How an attempt ended, in the words the store keeps: outcome, and ``{kind, message, remedy, traceback?}``."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Literal

from amp_core.events import Failed
from server.queue.finish import Outcome

Reason = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What `server.queue.finish.finish` is given; an attempt that another host broke is lost, and queued again."""

    outcome: Outcome | Literal["lost"]
    reason: Reason | None = None
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What the supervisor saw of a child that is gone.

    ``stopped_for`` is the reason for which it was killed by us; ``was_cancelled`` that a person asked.
    ``has_paused``: it was asked to pause, and either did or had to be killed for it.
    """

    exit_code: int
    step: int
    has_finished: bool
    failed: Failed | None = None
    stopped_for: Reason | None = None
    was_cancelled: bool = False
    has_paused: bool = False
    was_killed: bool = False
    was_oom_killed: bool = False


REMEDIES = {
    "exception": "Read the traceback and the log; mend the workload and submit it again.",
    "exit": "Look for sys.exit, quit or os._exit in the workload, and in the log for what it said.",
    "out_of_memory": "Use a smaller batch or model, or raise max_memory_bytes.",
    "recipe": "Choose a recipe this device can run.",
    "contract": "Change the script as the message says; docs/scripts.md shows the order of a step.",
    "not_resumable": "Clone the run to start it from step 1, or make the script's data depend on its seed alone.",
    "fork": "Fork from a kept checkpoint that is there, or train the baseline again with keep_checkpoints.",
    "workload": "Mend the workload file; `python -m amp_core describe FILE` shows its errors.",
    "interrupted": "Retry the run.",
    "signal": "A native library crashed or something outside killed the process; see the end of the log.",
    "peer": "See the logs of the other ranks; a host may be gone, or its network.",
    "rendezvous": "See the log; AMPBOARD_ADVERTISE_ADDRESS on the first host's worker names an address that all reach.",
    "protocol": "The workload wrote to a file descriptor it does not own; let it write only to files it opened.",
}


def ending_of(seen: Evidence) -> Ending:
    """Judge what was seen; what the child itself said comes before its exit code, what we did before both."""
    if seen.has_finished:  # a crash in the teardown of some library takes nothing away
        return Ending(outcome="completed", exit_code=seen.exit_code)
    if seen.stopped_for is not None:
        return Ending(outcome="failed", reason=seen.stopped_for, exit_code=seen.exit_code)
    if seen.was_cancelled:
        message = "It did not stop when asked, and was killed." if seen.was_killed else ""
        return Ending(outcome="cancelled", reason={"kind": "cancelled", "message": message}, exit_code=seen.exit_code)
    if seen.has_paused:
        return Ending(outcome="paused", exit_code=seen.exit_code)
    return Ending(outcome="failed", reason=_failure(seen), exit_code=seen.exit_code)


def _failure(seen: Evidence) -> Reason:
    if seen.failed is not None:
        said = seen.failed
        reason = {"kind": said.kind, "message": said.message, "remedy": REMEDIES.get(said.kind, "See the log.")}
        return reason | ({"traceback": said.traceback} if said.traceback else {})
    after = f"after step {seen.step}" if seen.step else "before its first step"
    if seen.exit_code >= 0:
        message = f"The process ended with exit code {seen.exit_code} {after}, without finishing the run."
        return {"kind": "exit", "message": message, "remedy": REMEDIES["exit"]}
    name = signal_name(-seen.exit_code)
    if seen.exit_code == -signal.SIGKILL and seen.was_oom_killed:
        message = f"The kernel killed the process {after} because memory ran out."
        return {"kind": "out_of_memory", "message": message, "remedy": REMEDIES["out_of_memory"]}
    message = f"The process was killed by {name} (signal {-seen.exit_code}) {after}."
    return {"kind": "signal", "message": message, "remedy": REMEDIES["signal"]}


def signal_name(number: int) -> str:
    """``SIGSEGV`` and the like; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
