"""The rules of every loss scaler on recorded gradients: what each would have skipped, and where its scale would stand.

The rules are those of `amp_core.scaler.LossScaler` and `torch.amp.GradScaler` in the same FP32 arithmetic. A step's
gradients overflow at a scale if they did at that scale when the run made it; at other scales the recorded exponents
decide, and where a skipped step has none, the scale below it is taken to pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from amp_core.config import Scaler
from amp_core.telemetry.exponents import MAX_SCALE_POWER, MIN_SCALE_POWER, Histogram

FP16_OVERFLOW = 65520.0  # the smallest magnitude that fp16 rounds to infinity


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """What a run recorded of one step: its scale, whether it was skipped, and its gradients where it was sampled.

    ``gradients``: the exponents of all modules together, after unscaling.
    """

    step: int
    scale: float
    skipped: bool
    gradients: Histogram | None = None

    def overflows(self, scale: float, nearest: Histogram | None) -> bool:
        """Whether fp16 overflows at a scale; ``nearest`` stands in for gradients that were not sampled."""
        if self.skipped:
            return scale >= self.scale or (self.gradients is not None and overflow_at(self.gradients, scale))
        if scale <= self.scale:
            return False
        gradients = self.gradients if self.gradients is not None else nearest
        return gradients is not None and overflow_at(gradients, scale)


def overflow_at(gradients: Histogram, scale: float) -> bool:
    """Whether any finite element overflows fp16 at a scale: exact for powers of two, else by the middle of its bin."""
    mantissa, exponent = math.frexp(scale)
    if mantissa == 0.5 and MIN_SCALE_POWER <= exponent - 1 <= MAX_SCALE_POWER:
        return gradients.shares("fp16", exponent - 1).num_overflow > 0
    exponents, _ = gradients.by_exponent()
    return bool(exponents) and math.ldexp(1.5, exponents[-1]) * scale >= FP16_OVERFLOW


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


def _nearest(steps: Sequence[RecordedStep]) -> Iterator[Histogram | None]:
    """For each step the gradients of the last sampled step up to it, or else of the first after it."""
    last = next((one.gradients for one in steps if one.gradients is not None), None)
    for one in steps:
        last = one.gradients if one.gradients is not None else last
        yield last


def _single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))
