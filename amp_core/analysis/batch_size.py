"""The largest batch that fits, and throughput by batch: doubling from the workload's own size, then bisection.

Every size is really tried, in a process of its own, so that one that does not fit ends nothing but itself. Fit and
throughput are said of the recipe on this device; a larger batch is another experiment, never a verdict on quality.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any

from amp_core.analyses import BatchSizeOptions, parse_options
from amp_core.analysis.batch_attempt import attempt, own_size
from amp_core.analysis.frame import Analysis
from amp_core.analysis.plain import plain
from amp_core.benchmark.messages import Fitted
from amp_core.config import RunConfig
from amp_core.events import Event, Progress, Report, Started
from amp_core.workload import Workload

KIND = "batch-size"


def search(first: int, largest: int, resolution: float) -> Generator[int, bool, tuple[int | None, int | None]]:
    """Yield sizes, be sent whether each fits; return the largest that did and the smallest that did not. Pure.

    Doubles from ``first`` up to ``largest`` or, where that does not fit, halves down to 1; then bisects until both ends
    are within ``resolution`` of each other, relatively.
    """
    good: int | None = None
    bad: int | None = None
    size = min(first, largest)
    while bad is None or good is None:
        if (yield size):
            good = size
            if size >= largest:
                break
            size = min(2 * size, largest)
        else:
            bad = size
            if size == 1:
                break
            size = size // 2
    while good is not None and bad is not None and bad - good > max(1, int(resolution * good)):
        middle = (good + bad) // 2
        if (yield middle):
            good = middle
        else:
            bad = middle
    return good, bad


def batch_size(config: RunConfig, workload: Workload) -> Iterator[Event]:  # noqa: ARG001 - each attempt loads its own
    """Try sizes: `Started` after the first that fits, `Progress` and partial `Report`s, the final `Report`, `Finished`.

    Raises:
        ArmFailed: where a size fails for another reason than memory; emulated recipes, for one, are refused.
    """
    options = parse_options(KIND, config.options)
    assert isinstance(options, BatchSizeOptions)
    work = _BatchSize(config, options)
    yield from work.told()


class _BatchSize(Analysis):
    """The state of one analysis between its attempts."""

    def __init__(self, config: RunConfig, options: BatchSizeOptions) -> None:
        super().__init__(config)
        self.options = options
        self.points: list[dict[str, Any]] = []
        self.ended = "searching"

    def events(self) -> Iterator[Event]:
        options = self.options
        first = options.first or own_size(self.config)
        sizes = search(first, options.largest, options.resolution)
        is_started = False
        try:
            size = next(sizes)
            while not self._spent():
                yield Progress(done=len(self.points), total=self._expected(), message=f"Trying a batch of {size:,}")
                found = attempt(self.config, size, options.steps, options.memory_limit_bytes)
                self._note(size, found)
                if isinstance(found, Fitted) and not is_started:
                    is_started = True
                    yield _started(found)
                yield self.report(final=False)
                size = sizes.send(isinstance(found, Fitted))
            self.ended = "stopped"
        except StopIteration:
            self.ended = "found" if self._fitting() else "none"
        yield self.report(final=True)

    def _note(self, size: int, found: Fitted | str) -> None:
        point: dict[str, Any] = {"batch": size, "fits": isinstance(found, Fitted), "reason": ""}
        if isinstance(found, Fitted):
            point |= {"samples_per_s": found.samples_per_s, "step_s": found.step_s, "peak_bytes": found.peak_bytes}
        else:
            point["reason"] = found
        self.points.append(point)
        self.points.sort(key=lambda one: int(one["batch"]))

    def _spent(self) -> bool:
        return bool(self.points) and time.monotonic() - self.began > self.options.max_seconds

    def _expected(self) -> int:
        return max(len(self.points) + 1, 10)

    def _fitting(self) -> list[dict[str, Any]]:
        return [point for point in self.points if point["fits"]]

    def report(self, final: bool) -> Report:
        """What is known so far."""
        fitting = self._fitting()
        failed = [point["batch"] for point in self.points if not point["fits"]]
        content = {
            "state": self.ended,
            "answer": self._answer(fitting, failed),
            "largest": fitting[-1]["batch"] if fitting else None,
            "smallest_too_large": min(failed, default=None),
            "points": self.points,
            "memory_limit_bytes": self.options.memory_limit_bytes,
            "device": self.config.device,
            "accumulate": self.config.recipe.accumulate,
            "seconds": time.monotonic() - self.began,
        }
        return Report(kind=KIND, content=plain(content), final=final)

    def _answer(self, fitting: list[dict[str, Any]], failed: list[int]) -> str:
        if not fitting:
            return "Not even one sample fits." if self.ended == "none" else "No batch has fitted so far."
        largest = fitting[-1]["batch"]
        fastest = max(fitting, key=lambda point: float(point["samples_per_s"]))
        beyond = f"{min(failed):,} does not" if failed else f"the search ended at {self.options.largest:,}"
        so_far = "" if self.ended == "found" else " so far" if self.ended == "searching" else " (the time ended)"
        return (
            f"A batch of {largest:,} fits{so_far}, {beyond}. Fastest is {fastest['batch']:,} with "
            f"{fastest['samples_per_s']:,.0f} samples/s."
        )


def _started(found: Fitted) -> Started:
    return Started(
        numerics=found.numerics,
        environment=found.environment,
        num_parameters=found.num_parameters,
        setup_s=found.setup_s,
    )
