"""What the engine's bench says of its times: paired differences, bootstrap intervals, and which aims they decide."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

BARE = "bare torch"
ENGINE = "engine"
NUMERICS = "engine, numerics every 25"
NUM_RESAMPLES = 4000
Times = Mapping[str, np.ndarray]  # seconds per step by arm, `(starts, rounds)`; the bare loop's is of the same round
Answer = Literal["held", "missed", "not shown"]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The mean over starts of the median over rounds, and its bootstrap interval of 95 %."""

    value: float
    low: float
    high: float

    def below(self, limit: float) -> Answer:
        """Whether the whole interval is below the limit, or above, or neither."""
        if self.high < limit:
            return "held"
        return "missed" if self.low >= limit else "not shown"


def estimate(values: np.ndarray) -> Estimate:
    """Of figures `(starts, rounds)`. Starts are drawn with replacement, and rounds within each start drawn.

    A process has its memory where it happens to lie, so that rounds of one start are more alike than starts are:
    drawing rounds alone would give an interval for these very processes.
    """
    draw = np.random.default_rng(0)
    starts, rounds = values.shape
    chosen = draw.integers(starts, size=(NUM_RESAMPLES, starts))
    drawn = draw.integers(rounds, size=(NUM_RESAMPLES, starts, rounds))
    means = np.median(values[chosen[:, :, None], drawn], axis=2).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(value=float(np.median(values, axis=1).mean()), low=float(low), high=float(high))


def added_us(times: Times, name: str, to: str = BARE) -> Estimate:
    """Microseconds a step more than another arm in the same round."""
    return estimate((times[name] - times[to]) * 1e6)


def ratio(times: Times, name: str, to: str = BARE) -> Estimate:
    """Time a step by that of another arm in the same round."""
    return estimate(times[name] / times[to])


def table(case_name: str, times: Times, clock: str) -> str:
    """Markdown: every arm beside the bare loop."""
    starts, rounds = times[BARE].shape
    lines = [
        f"{case_name}: {np.median(times[BARE]) * 1e3:.3f} ms a step in the bare loop ({clock} time), "
        f"n = {starts} starts of {rounds} rounds, load {' '.join(f'{load:.1f}' for load in os.getloadavg())}",
        "",
        "| loop | ratio to bare | 95 % interval | added a step, µs | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for name in times:
        if name != BARE:
            by, more = ratio(times, name), added_us(times, name)
            lines.append(
                f"| {name} | {by.value:.4f} | {by.low:.4f} to {by.high:.4f} "
                f"| {more.value:+.1f} | {more.low:+.1f} to {more.high:+.1f} |"
            )
    return "\n".join(lines) + "\n"


def answers(case_name: str, times: Times) -> str:
    """Markdown: what was aimed at, and whether the intervals show it. Sampled numerics stand apart, without an aim."""
    lines = ["| aimed at | measured | 95 % interval | |", "|---|---|---|---|"]
    if case_name == "gpt":
        over = ratio(times, ENGINE)
        lines.append(
            f"| under 1 % over bare | {over.value - 1:+.2%} | {over.low - 1:+.2%} to {over.high - 1:+.2%} "
            f"| {over.below(1.01)} |"
        )
    else:
        more = added_us(times, ENGINE)
        lines.append(
            f"| under 25 µs a step over bare | {more.value:+.1f} µs | {more.low:+.1f} to {more.high:+.1f} "
            f"| {more.below(25.0)} |"
        )
    for other in times:
        if not other.startswith(ENGINE) and other != BARE:
            less = added_us(times, ENGINE, other)
            lines.append(
                f"| less than {other} | {less.value:+.1f} µs | {less.low:+.1f} to {less.high:+.1f} "
                f"| {less.below(0.0)} |"
            )
    if NUMERICS in times:
        cost, by = added_us(times, NUMERICS, ENGINE), ratio(times, NUMERICS, ENGINE)
        lines.append(
            f"| sampled numerics, over the engine without | {cost.value:+.1f} µs, {by.value - 1:+.2%} "
            f"| {cost.low:+.1f} to {cost.high:+.1f} | stated |"
        )
    return "\n".join(lines) + "\n"
