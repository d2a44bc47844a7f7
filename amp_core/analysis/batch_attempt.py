"""One attempt: a few training steps with a batch of some size, in a process of its own under a memory ceiling."""

from __future__ import annotations

import resource
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import torch

from amp_core import loader
from amp_core.analysis.sized_batches import batches_of, workload_for
from amp_core.benchmark.arm import training_step
from amp_core.benchmark.memory import Peak
from amp_core.benchmark.messages import Fitted, Timed, encode
from amp_core.benchmark.process import ArmProcess
from amp_core.config import RunConfig
from amp_core.environment import environment
from amp_core.errors import ArmFailed
from amp_core.telemetry.memory import device_peak_bytes
from amp_core.training_data import TrainingData
from amp_core.workload import num_samples_of

WARMUP_STEPS = 2
AVAILABLE_SHARE = 0.8  # of the host's free memory, where no ceiling is given
_NO_ROOM = ("Cannot allocate memory", "could not create a primitive", "could not execute a primitive", "std::bad_alloc")


def attempt(config: RunConfig, size: int, steps: int, limit_bytes: int | None) -> Fitted | str:
    """What ``steps`` steps at this size took, or why it does not fit.

    Raises:
        ArmFailed: for a failure that is not about memory.
    """
    name = f"process with a batch of {size:,}"
    process = ArmProcess(name, lambda connection: _work(connection, config, size, steps, limit_bytes), name)
    try:
        return process.answer(Fitted)
    except ArmFailed as error:
        if error.kind == "out_of_memory" or any(text in str(error) for text in _NO_ROOM):
            return f"a batch of {size:,} found no memory"
        if "was killed by" in str(error):
            return f"its {error}"
        raise
    finally:
        process.close()


def own_size(config: RunConfig) -> int:
    """The number of samples in the workload's own batches. In a process of its own: forks come before computing."""

    def work(connection: Connection) -> None:
        first = next(TrainingData(loader.load(config.workload), config.seed))
        connection.send_bytes(encode(Timed(samples=num_samples_of(first), seconds=0.0)))
        connection.recv_bytes()

    process = ArmProcess("first batch", work, "the process that took the first batch")
    try:
        return process.answer(Timed).samples
    finally:
        process.close()


def _work(connection: Connection, config: RunConfig, size: int, steps: int, limit_bytes: int | None) -> None:
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    workload = workload_for(config.workload, size)
    torch.ones(64, 64) @ torch.ones(64, 64)  # threads and their stacks are not the batch's
    peak = Peak()
    peak.start()
    _set_ceiling(config.device, limit_bytes)
    began = time.perf_counter()
    with training_step(config, config.recipe, workload) as step:
        device = step.precision.device
        took = batches_of(workload, config.seed, size, (WARMUP_STEPS + steps) * config.recipe.accumulate)
        setup_s = time.perf_counter() - began
        source, seconds = iter(took), []
        for _ in range(WARMUP_STEPS + steps):
            began = time.perf_counter()
            step.backward(step.take(source))
            peak.note()
            step.update()
            step.clear()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - began)
        step_s = statistics.median(seconds[WARMUP_STEPS:])
        fitted = Fitted(
            samples_per_s=size * config.recipe.accumulate / step_s,
            step_s=step_s,
            peak_bytes=device_peak_bytes(device) if device.type == "cuda" else peak.growth_bytes(),
            numerics=step.precision.numerics,
            environment=environment(step.precision, config.workload.path),
            num_parameters=sum(p.numel() for p in step.model.parameters()),
            setup_s=setup_s,
        )
    connection.send_bytes(encode(fitted))
    connection.recv_bytes()  # until the parent ends this process


def _set_ceiling(device: str, limit_bytes: int | None) -> None:
    """Let allocations beyond the ceiling fail: of the device's memory, or of this process's data on a CPU."""
    if device.startswith("cuda"):
        if limit_bytes is not None:
            total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total))
        return
    room = limit_bytes if limit_bytes is not None else int(AVAILABLE_SHARE * psutil.virtual_memory().available)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + room, resource.RLIM_INFINITY))


def _data_bytes() -> int:
    """VmData of this process: private writable memory, which RLIMIT_DATA counts (setrlimit(2))."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
