"""From an exception to the event that says how it ended a run. No torch: it may be the import that failed."""

from __future__ import annotations

import traceback

from amp_core.errors import (
    ContractError,
    ForkError,
    Interrupted,
    NotResumable,
    ProcessFailed,
    RecipeError,
    WorkloadError,
)
from amp_core.events import Failed

MAX_TRACEBACK_CHARACTERS = 20_000


def failure_of(error: BaseException) -> Failed:
    """The event that says how an exception ended the run."""
    trace = "".join(traceback.format_exception(error))[-MAX_TRACEBACK_CHARACTERS:]
    if isinstance(error, ProcessFailed):
        return Failed(kind=error.kind, message=str(error), traceback=error.traceback)
    if isinstance(error, RecipeError):
        return Failed(kind="recipe", message=str(error))
    if isinstance(error, WorkloadError):
        return Failed(kind="workload", message=str(error), traceback=trace if error.__cause__ is not None else "")
    if isinstance(error, ContractError):
        return Failed(kind="contract", message=str(error), traceback=trace)
    if isinstance(error, ForkError):
        return Failed(kind="fork", message=str(error))
    if isinstance(error, NotResumable):
        return Failed(kind="not_resumable", message=str(error), traceback=trace)
    if isinstance(error, Interrupted):
        return Failed(kind="interrupted", message="The run was asked to stop and stopped.")
    if isinstance(error, SystemExit):
        return Failed(kind="exit", message=f"The workload called sys.exit({error.code!r}).", traceback=trace)
    if isinstance(error, KeyboardInterrupt):
        return Failed(kind="interrupted", message="The run was interrupted (SIGINT).", traceback=trace)
    kind = "out_of_memory" if _is_out_of_memory(error) else "exception"
    text = str(error)
    return Failed(
        kind=kind, message=f"{type(error).__name__}: {text}" if text else type(error).__name__, traceback=trace
    )


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch.OutOfMemoryError
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
