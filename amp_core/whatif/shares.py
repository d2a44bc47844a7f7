"""Shares that a format would lose, module by module, and the best static scale; exact for the recorded tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from amp_core.telemetry.exponents import (
    FORMATS,
    MAX_SCALE_POWER,
    MIN_SCALE_POWER,
    Histogram,
    Shares,
    merged,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestScale:
    """The largest power of two at which nothing overflows, and what is lost there.

    ``lossless`` is the smallest power at which nothing underflows, or None; a scale from there up to ``power`` keeps
    every element.
    """

    power: int
    shares: Shares
    lossless: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """Predicted shares beside measured ones: how many pairs, the mean and the largest |difference|."""

    pairs: int
    mean: float
    largest: float


def scale_power(scale: float) -> int:
    """k of a scale 2**k. Raises `ValueError` for any other number."""
    mantissa, exponent = math.frexp(scale) if math.isfinite(scale) else (0.0, 0)
    if mantissa != 0.5 or not MIN_SCALE_POWER <= exponent - 1 <= MAX_SCALE_POWER:
        raise ValueError(
            f"scale={scale:g} must be a power of two from 2**{MIN_SCALE_POWER} to 2**{MAX_SCALE_POWER}: histograms "
            "answer exactly for those alone; choose a neighbour"
        )
    return exponent - 1


def shares_by_module(modules: Mapping[str, Histogram], name: str, power: int) -> dict[str, Shares]:
    """What casting each module's recorded elements times 2**power to the format of that name does."""
    return {module: histogram.shares(name, power) for module, histogram in modules.items()}


def best_scale(histograms: Iterable[Histogram], name: str) -> BestScale | None:
    """The best static scale for all of them; None where there is nothing finite to scale."""
    whole = merged(histograms)
    if not int(whole.finite.sum()):
        return None
    low, high = MIN_SCALE_POWER, MAX_SCALE_POWER  # overflow begins somewhere above: bisection
    if whole.shares(name, low).num_overflow:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (low, middle - 1) if whole.shares(name, middle).num_overflow else (middle, high)
    shares = whole.shares(name, low)
    lossless = _lossless(whole, name, low) if shares.num_underflow == 0 else None
    return BestScale(power=low, shares=shares, lossless=lossless)


def _lossless(whole: Histogram, name: str, power: int) -> int:
    low, high = MIN_SCALE_POWER, power
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if whole.shares(name, middle).num_underflow else (low, middle)
    return low


def window(name: str) -> tuple[int, int, int]:
    """Exponents of a format's window: what is below the first becomes zero, below the second loses bits, above the
    third leaves the range."""
    of = FORMATS[name]
    return of.min_subnormal - 1, of.min_normal, of.max_exponent


def prediction_error(pairs: Iterable[tuple[float, float]]) -> PredictionError:
    """Compare predicted and measured shares; pairs with a share that is not a number are left out."""
    off = [abs(a - b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    return PredictionError(pairs=len(off), mean=sum(off) / len(off) if off else 0.0, largest=max(off, default=0.0))
