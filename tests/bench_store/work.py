"""The work every tracker does, and how it is timed. Standard library only: it also runs in the peers' environments."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAMES = [f"metric/{number}" for number in range(20)]
VIEW_POINTS = 2000


def values(size: int, seed: int = 0) -> list[float]:
    """A noisy loss as training gives it: float32 numbers, with a spike every 10,000 steps."""
    rng = random.Random(seed)
    made = [2.0 / (1 + step / 500) + 0.05 * rng.gauss(0, 1) for step in range(size)]
    for step in range(5_000, size, 10_000):
        made[step] = 100.0
    return list(struct.unpack(f"<{size}f", struct.pack(f"<{size}f", *made)))


def calls(num_steps: int, num_metrics: int) -> list[dict[str, float]]:
    """What a training loop logs, made beforehand so that making it is not timed."""
    columns = [values(num_steps, seed) for seed in range(num_metrics)]
    names = NAMES[:num_metrics]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class Timed:
    """Times each call of ``log``; `report` gives rate and percentiles."""

    def __init__(self, log: Callable[[dict[str, float], int], object]) -> None:
        self._log, self._taken = log, [0]

    def run(self, made: list[dict[str, float]], finish: Callable[[], object]) -> dict[str, float]:
        log, clock = self._log, time.perf_counter_ns
        taken = [0] * len(made)
        begin = clock()
        for step, metrics in enumerate(made):
            start = clock()
            log(metrics, step)
            taken[step] = clock() - start
        finish()
        seconds = (clock() - begin) / 1e9
        num_points = sum(map(len, made))
        taken.sort()
        return {
            "points_per_s": num_points / seconds,
            "p50_us": taken[len(taken) // 2] / 1e3,
            "p99_us": taken[math.floor(len(taken) * 0.99)] / 1e3,
            "num_points": num_points,
        }


def best_ms(call: Callable[[], object], rounds: int = 3) -> float:
    """The shortest wall time of a call in some rounds, in milliseconds: what it takes when nothing else runs."""
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return 1e3 * min(taken)


def num_bytes(folder: str) -> int:
    """Bytes of every file below a folder, as the disk holds them."""
    return sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*") if path.is_file())


def job() -> dict[str, Any]:
    """What the bench asks of a peer: its folder, sizes of logging, lengths of series."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


def tell(**figures: Any) -> None:
    """One line of results, which the bench reads."""
    sys.__stdout__.write("\nFIGURES " + json.dumps(figures) + "\n")
    sys.__stdout__.flush()
    os._exit(0)  # some trackers keep threads and servers alive


def read_lengths(lengths: list[int]) -> Iterator[tuple[int, list[float]]]:
    """The series to be read, by length."""
    for length in lengths:
        yield length, values(length)
