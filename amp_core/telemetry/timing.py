"""How long a step takes, without waiting for the device while it runs."""

from __future__ import annotations

import time
from typing import Protocol

import torch

# Seconds on a CPU; pairs of CUDA events, whose distance is read when the step has long ended.
Duration = float | list[tuple[torch.cuda.Event, torch.cuda.Event]]


class StepTimer(Protocol):
    """Adds up the parts of one step: ``start``/``stop`` may repeat before ``take``."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def take(self) -> Duration: ...


class HostTimer:
    """For the CPU, where calls return when the work is done."""

    def __init__(self) -> None:
        self._total = self._started = 0.0

    def start(self) -> None:
        self._started = time.perf_counter()

    def stop(self) -> None:
        self._total += time.perf_counter() - self._started

    def take(self) -> Duration:
        total, self._total = self._total, 0.0
        return total


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class CudaTimer:
    """For CUDA: events in the stream, read at the flush."""

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def start(self) -> None:
        pair = (_event(), _event())
        pair[0].record()
        self._pairs.append(pair)

    def stop(self) -> None:
        self._pairs[-1][1].record()

    def take(self) -> Duration:
        pairs, self._pairs = self._pairs, []
        return pairs


def timer_for(device: torch.device) -> StepTimer:
    """The timer of a device type."""
    return CudaTimer() if device.type == "cuda" else HostTimer()


def seconds(duration: Duration) -> float:
    """The duration as a number; waits until the step has ended on the device."""
    if isinstance(duration, float):
        return duration
    total = 0.0
    for begin, end in duration:
        end.synchronize()
        total += begin.elapsed_time(end) / 1e3
    return total
