"""How much memory a recipe's training takes, in a process where nothing else happens."""

from __future__ import annotations

import ctypes
import gc
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from amp_core.benchmark.arm import prepare, training_step
from amp_core.benchmark.messages import MemoryUsed, encode
from amp_core.config import Recipe, RunConfig
from amp_core.step import TrainStep
from amp_core.telemetry.memory import SavedBytes, device_peak_bytes, process_bytes
from amp_core.training_data import TrainingData
from amp_core.workload import to_device

NUM_STEPS = 4
_CLEAR_HIGH_WATER_MARK = "5"  # proc(5), /proc/pid/clear_refs


def measure(connection: Connection, config: RunConfig, recipe: Recipe) -> None:
    """Send the `MemoryUsed` of a few steps, counted from before the model is built.

    A first model trains and is dropped, so that code pages, kernels and caches are not counted as the recipe's.
    """
    workload = prepare(config)
    source = TrainingData(workload, config.seed)
    batches = [next(source) for _ in range(NUM_STEPS * recipe.accumulate)]
    with training_step(config, recipe, workload) as step:
        saved = SavedBytes(step.model)
        _train(step, batches, Peak())
        with saved.measured():
            step.forward(to_device(batches[0], step.precision.device))
    del step
    peak = Peak()
    peak.start()
    with training_step(config, recipe, workload) as step:
        device = step.precision.device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        _train(step, batches, peak)
        used = MemoryUsed(
            process_growth_bytes=peak.growth_bytes(),
            device_peak_bytes=device_peak_bytes(device) if device.type == "cuda" else 0,
            saved_for_backward_bytes=saved.total,
        )
    connection.send_bytes(encode(used))
    connection.recv_bytes()  # until the parent ends this process


def _train(step: TrainStep, batches: list[Any], peak: Peak) -> None:
    source = iter(batches)
    for _ in range(NUM_STEPS):
        step.backward(step.take(source))
        peak.note()
        step.update()
        peak.note()
        step.clear()


class Peak:
    """The growth of this process's resident memory since `start`.

    By the kernel's high-water mark where that can be reset; elsewhere the largest of the values seen by `note`.
    """

    def __init__(self) -> None:
        self._before = 0
        self._seen = 0
        self._has_mark = False

    def start(self) -> None:
        gc.collect()
        _return_free_memory()
        self._before = process_bytes()
        try:
            Path("/proc/self/clear_refs").write_text(_CLEAR_HIGH_WATER_MARK, encoding="ascii")
            self._has_mark = True
        except OSError:
            self._has_mark = False

    def note(self) -> None:
        """Look at the memory now."""
        self._seen = max(self._seen, process_bytes())

    def growth_bytes(self) -> int:
        top = max(self._seen, _high_water_bytes()) if self._has_mark else self._seen
        return max(0, top - self._before)


def _high_water_bytes() -> int:
    """VmHWM of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _return_free_memory() -> None:
    """Have the allocator give its free pages back, so that they do not hide what is allocated next."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
