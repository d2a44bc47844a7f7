"""The rules of every loss scaler on recorded gradients: what each would have skipped, and where its scale would stand.

The rules are those of `amp_core.scaler.LossScaler` and `torch.amp.GradScaler` in the same FP32 arithmetic. A step's
gradients overflow at a scale if they did at that scale when the run made it; at other scales the recorded largest
magnitude decides, and where that is unknown the recorded decision does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from amp_core.config import Scaler
from amp_core.telemetry.exponents import MAX_EXPONENT, MIN_EXPONENT, Histogram

FP16_OVERFLOW = 65520.0  # the smallest magnitude that fp16 rounds to infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """What a run recorded of one step: its scale, whether it was skipped, and the largest |gradient| if it is known.

    ``largest`` is after unscaling; None where it was not sampled or not finite.
    """

    step: int
    scale: float
    skipped: bool
    largest: float | None = None

    def overflows(self, scale: float, nearest: float | None) -> bool:
        """Whether fp16 overflows at another scale; ``nearest`` stands in for a largest gradient that is not known."""
        if self.skipped:
            if scale >= self.scale:
                return True
            return self.largest is not None and self.largest * scale >= FP16_OVERFLOW
        if scale <= self.scale:
            return False
        largest = self.largest if self.largest is not None else nearest
        return largest is not None and largest * scale >= FP16_OVERFLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a scaler did at one step."""

    step: int
    scale_before: float
    skipped: bool
    scale_after: float


class ScalerRule:
    """The state of one scaler; `decide` moves it by one step."""

    def __init__(self, scaler: Scaler) -> None:
        self._rule = scaler
        self.scale = float(np.float32(scaler.init_scale)) if scaler.kind != "none" else 1.0
        self._clean = 0
        self._left = scaler.hysteresis

    def decide(self, step: int, overflowed: bool) -> Decision:
        """Take a step whose gradients at the present scale did or did not overflow."""
        before = self.scale
        if self._rule.kind == "dynamic":
            self._update(overflowed)
        skipped = overflowed and self._rule.kind != "none"
        return Decision(step=step, scale_before=before, skipped=skipped, scale_after=self.scale)

    def _update(self, overflowed: bool) -> None:
        rule, before = self._rule, self.scale
        if overflowed:
            self.scale, self._clean = _single(before * rule.backoff_factor), 0
        else:
            self._clean += 1
            if self._clean == rule.growth_interval:
                grown = _single(before * rule.growth_factor)
                self.scale, self._clean = grown if math.isfinite(grown) else before, 0
        if rule.hysteresis > 1:
            self._count(overflowed)
            if overflowed and self._left > 0:
                self.scale = before
        highest = math.inf if rule.max_scale is None else _single(rule.max_scale)
        self.scale = min(max(self.scale, _single(rule.min_scale)), highest)

    def _count(self, overflowed: bool) -> None:
        if overflowed:
            self._left = max(self._left - 1, 0)
        elif self._rule.hysteresis_refill == "clean_step" or self._clean == 0:
            self._left = self._rule.hysteresis


def replay_scaler(scaler: Scaler, steps: Sequence[RecordedStep]) -> list[Decision]:
    """The decisions of a scaler on recorded steps. With the run's own scaler they are the run's own decisions."""
    rule = ScalerRule(scaler)
    return [
        rule.decide(one.step, one.overflows(rule.scale, nearest))
        for one, nearest in zip(steps, _nearest(steps), strict=True)
    ]


def largest_magnitude(histograms: Iterable[Histogram]) -> float | None:
    """An upper bound of the largest finite magnitude, by its exponent; None without finite elements."""
    top = max((_top(histogram) for histogram in histograms), default=MIN_EXPONENT - 1)
    return None if top < MIN_EXPONENT else math.ldexp(2.0 - 2.0**-23, min(top, MAX_EXPONENT))


def _top(histogram: Histogram) -> int:
    exponents, _ = histogram.by_exponent()
    return exponents[-1] if exponents else MIN_EXPONENT - 1


def _nearest(steps: Sequence[RecordedStep]) -> Iterator[float | None]:
    """For each step the largest gradient of the last step before it, or else after it, that has one."""
    first = next((one.largest for one in steps if one.largest is not None), None)
    last = first
    for one in steps:
        last = one.largest if one.largest is not None else last
        yield last


def _single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))
