"""The benchmark: two arms that stand ready, timed by turns, then the memory of each alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

from amp_core.benchmark import arm, memory
from amp_core.benchmark.messages import MemoryUsed, Mode, Ready, RunBlock, Timed
from amp_core.benchmark.process import ArmProcess
from amp_core.config import Recipe, RunConfig
from amp_core.errors import RecipeError
from amp_core.events import BenchmarkBlock, BenchmarkMemory, Event, Finished, Started

NUM_BLOCKS = 10  # of each arm in each mode
BLOCK_S = 0.25
PAUSE_S = 0.01  # lets the other arm's OpenMP threads fall asleep
MODES: tuple[Mode, ...] = ("compute", "loader")


def benchmark(config: RunConfig) -> Iterator[Event]:
    """Compare ``config.recipe`` with ``config.baseline``: `Started`, blocks in the order ABBA, memory, `Finished`.

    Both arms train from the same seed in processes forked from this one, which must not have computed with torch
    before. While one arm runs, the other waits.

    Raises:
        RecipeError: if there is no baseline, or a recipe cannot run natively on the device.
        ArmFailed: if an arm fails.
    """
    if config.baseline is None:
        raise RecipeError("a benchmark compares two recipes: give the run configuration a baseline")
    recipes = {"baseline": config.baseline, "candidate": config.recipe}
    tally = _Tally()
    with ExitStack() as stack:
        arms: dict[str, ArmProcess] = {}
        ready: dict[str, Ready] = {}
        for name, recipe in recipes.items():
            work = partial(arm.serve, config=config, recipe=recipe)
            arms[name] = stack.enter_context(closing(ArmProcess(name, work)))
            ready[name] = arms[name].answer(Ready)
        yield _started(ready)
        for mode in MODES:
            for event in _blocks(mode, arms, {name: ready[name].step_s[mode] for name in arms}):
                tally.add(event)
                yield event
    for name, recipe in recipes.items():
        yield _memory(config, name, recipe)
    yield tally.finished(sum(one.warmup_s for one in ready.values()))


def _started(ready: dict[str, Ready]) -> Started:
    candidate = ready["candidate"]
    return Started(
        numerics=candidate.numerics,
        environment={**candidate.environment, "baseline_recipe": ready["baseline"].environment["recipe"]},
        num_parameters=candidate.num_parameters,
        setup_s=sum(one.setup_s for one in ready.values()),
    )


def _blocks(mode: Mode, arms: dict[str, ArmProcess], step_s: dict[str, float]) -> Iterator[BenchmarkBlock]:
    """`NUM_BLOCKS` blocks of each arm, each about `BLOCK_S` long: A B, B A, A B …, so that drift hits both alike."""
    steps = {name: max(1, round(BLOCK_S / max(step_s[name], 1e-6))) for name in arms}
    for number in range(1, NUM_BLOCKS + 1):
        order = list(arms) if number % 2 else list(reversed(arms))
        for name in order:
            time.sleep(PAUSE_S)
            arms[name].ask(RunBlock(mode=mode, steps=steps[name]))
            timed = arms[name].answer(Timed)
            yield BenchmarkBlock(
                block=number, mode=mode, arm=name, steps=steps[name], samples=timed.samples, seconds=timed.seconds
            )


def _memory(config: RunConfig, name: str, recipe: Recipe) -> BenchmarkMemory:
    with closing(ArmProcess(name, partial(memory.measure, config=config, recipe=recipe))) as process:
        used = process.answer(MemoryUsed)
    return BenchmarkMemory(
        arm=name,
        process_growth_bytes=used.process_growth_bytes,
        device_peak_bytes=used.device_peak_bytes,
        saved_for_backward_bytes=used.saved_for_backward_bytes,
    )


class _Tally:
    """Totals over all blocks."""

    def __init__(self) -> None:
        self.steps = self.samples = 0
        self.seconds = 0.0

    def add(self, block: BenchmarkBlock) -> None:
        self.steps += block.steps
        self.samples += block.samples
        self.seconds += block.seconds

    def finished(self, warmup_s: float) -> Finished:
        return Finished(
            metrics={},
            steps=self.steps,
            skipped_steps=0,
            samples=self.samples,
            lost_samples=0,
            train_s=self.seconds,
            warmup_s=warmup_s,
        )
