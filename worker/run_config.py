"""From a claimed row to the configuration a child process gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from amp_core.config import RunConfig
from server.queue.claim import ClaimedRun
from server.settings import Settings
from worker.devices import num_cores
from worker.slots import Slot
from worker.supervise import Limits


def run_config(claimed: ClaimedRun, slot: Slot, workload_path: Path, scratch: Path, settings: Settings) -> RunConfig:
    """The child's configuration: the row's, on this host's paths, device and threads.

    A child sees its own GPU only, so that its device is plain ``cuda``. Raises `msgspec.ValidationError` or
    `amp_core.errors.RecipeError` for a row this version cannot run.
    """
    known = {name: value for name, value in claimed.config.items() if name in RunConfig.__struct_fields__}
    distribution = known.get("distribution", {})
    if (gang := claimed.gang) is not None:
        meeting = {"nnodes": gang.num_hosts, "node_rank": gang.node, "rdzv_endpoint": gang.endpoint}
        distribution = {**distribution, **meeting}
    workload: dict[str, Any] = {**known.get("workload", {}), "name": claimed.workload_name, "path": str(workload_path)}
    return msgspec.convert(
        {
            **known,
            "run_id": claimed.run_id,
            "attempt": claimed.attempt,
            "kind": claimed.kind,
            "recipe": claimed.recipe,
            "seed": claimed.seed,
            "steps": claimed.steps,
            "workload": workload,
            "device": slot.kind,
            "distribution": distribution,
            "num_threads": known.get("num_threads") or threads_per_run(settings),
            "scratch_dir": str(scratch),
        },
        RunConfig,
    )


def threads_per_run(settings: Settings) -> int:
    """Torch threads of a run: pinned, because another number of threads gives other last bits."""
    return settings.worker_threads or max(1, num_cores() // settings.worker_slots)


def limits_of(claimed: ClaimedRun, settings: Settings) -> Limits:
    """The run's own limits, or the worker's defaults."""
    return Limits(
        max_time_s=float(claimed.config.get("max_time_s") or settings.max_time_s),
        max_memory_bytes=claimed.config.get("max_memory_bytes") or settings.max_memory_bytes,
    )
