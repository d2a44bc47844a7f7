"""One arm of a benchmark: a recipe's training, standing ready in a process of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import torch

from amp_core import loader
from amp_core.benchmark.messages import Mode, Ready, Timed, encode, requests
from amp_core.config import Recipe, RunConfig
from amp_core.environment import environment
from amp_core.errors import RecipeError
from amp_core.precision import precision_for
from amp_core.setup import build_step, device_named
from amp_core.step import TrainStep
from amp_core.training_data import TrainingData
from amp_core.workload import Workload, num_samples_of

NUM_BATCHES = 8  # kept at hand for the compute mode
WARMUP_STEPS = 3
WARMUP_S = 0.5
NUM_MEASURED_STEPS = 3


class Arm:
    """Trains one recipe in blocks. Weights move on from block to block, as in training."""

    def __init__(self, config: RunConfig, workload: Workload, step: TrainStep) -> None:
        self.step = step
        self._device = step.precision.device
        self._batches = TrainingData(workload, config.seed)
        self._at_hand = [step.take(self._batches) for _ in range(NUM_BATCHES)]
        self._next = 0

    def block(self, mode: Mode, steps: int) -> Timed:
        """Run and time ``steps`` steps; nothing else happens between the two readings of the clock."""
        samples = 0
        self._synchronise()
        began = time.perf_counter()
        for _ in range(steps):
            taken = self._taken(mode)
            self.step.backward(taken)
            self.step.update()
            self.step.clear()
            samples += sum(num_samples_of(batch) for batch in taken)
        self._synchronise()
        return Timed(samples=samples, seconds=time.perf_counter() - began)

    def warm_up(self, mode: Mode) -> float:
        """Leave warm-up behind; return the time of a step after it."""
        began = time.perf_counter()
        self.block(mode, WARMUP_STEPS)
        while time.perf_counter() - began < WARMUP_S:
            self.block(mode, 1)
        return statistics.median(self.block(mode, 1).seconds for _ in range(NUM_MEASURED_STEPS))

    def _taken(self, mode: Mode) -> tuple[Any, ...]:
        if mode == "loader":
            return self.step.take(self._batches)
        self._next = (self._next + 1) % NUM_BATCHES
        return self._at_hand[self._next]

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


@contextmanager
def training_step(config: RunConfig, recipe: Recipe, workload: Workload) -> Iterator[TrainStep]:
    """A fresh training step with its precision applied. Raises `RecipeError` for an emulated one."""
    precision = precision_for(recipe, device_named(config.device))
    if precision.numerics == "emulated":
        raise RecipeError(
            f"recipe {recipe.name!r} is emulated on {config.device}: its speed and memory say nothing about a device "
            "that has fp16; benchmark it on one"
        )
    step = build_step(workload, recipe, precision, config.seed, config.steps)
    with precision.applied(step.model):
        yield step


def prepare(config: RunConfig) -> Workload:
    """What comes first in a process of a benchmark: its threads and the workload."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    return loader.load(config.workload)


def serve(connection: Connection, config: RunConfig, recipe: Recipe) -> None:
    """Build and warm up one arm, then run the blocks that are asked for, for ever."""
    began = time.perf_counter()
    workload = prepare(config)
    with training_step(config, recipe, workload) as step:
        arm = Arm(config, workload, step)
        built = time.perf_counter()
        modes: tuple[Mode, ...] = ("compute", "loader")
        step_s = {mode: arm.warm_up(mode) for mode in modes}
        ready = Ready(
            numerics=step.precision.numerics,
            environment=environment(step.precision, config.workload.path),
            num_parameters=sum(p.numel() for p in step.model.parameters()),
            setup_s=built - began,
            warmup_s=time.perf_counter() - built,
            step_s=step_s,
        )
        connection.send_bytes(encode(ready))
        while True:
            request = requests.decode(connection.recv_bytes())
            connection.send_bytes(encode(arm.block(request.mode, request.steps)))
