"""How much of a gain TF32 would give as well: speed against the experiment's tf32 recipe, beside that against FP32.

TF32 changes no line of a training script, so that who asks for lower precision wants to know what it adds to that.
"""

from __future__ import annotations

import zlib

import msgspec
import numpy as np

from amp_core.verdict.comparison import Gain, SpeedAgainst
from amp_core.verdict.evidence import BenchmarkEvidence, ExperimentEvidence
from amp_core.verdict.gain import MIN_BLOCKS, throughputs, times
from amp_core.verdict.statistics import Floats, bootstrap_ratio_of_ratios


def with_tf32(gain: Gain, evidence: ExperimentEvidence, recipe: str) -> Gain:
    """The gain with the speed against tf32 in it, and a sentence about it, where both have been measured."""
    speed = speed_against_tf32(evidence, recipe) if gain.speed is not None else None
    if speed is None:
        return gain
    return msgspec.structs.replace(gain, against_tf32=speed, sentence=f"{gain.sentence} {sentence(speed)}")


def speed_against_tf32(evidence: ExperimentEvidence, recipe: str) -> SpeedAgainst | None:
    """The recipe's throughput over tf32's, each from its own blocks against the same baseline; None without tf32.

    The two were timed one after the other, but each by turns with the baseline: what the device did differently
    meanwhile is in both arms of each, and leaves the ratio.
    """
    other = next((one.name for one in evidence.candidates if one.precision == "tf32"), None)
    if other is None or other == recipe:
        return None
    first, second = _arms(evidence.benchmark_of(recipe)), _arms(evidence.benchmark_of(other))
    if first is None or second is None:
        return None
    ratio, low, high = bootstrap_ratio_of_ratios(first, second, seed=zlib.crc32(f"tf32/{recipe}".encode()))
    return SpeedAgainst(recipe=other, ratio=ratio, interval=(low, high))


def sentence(speed: SpeedAgainst) -> str:
    """In words, without calling what lies around 1 faster."""
    low, high = speed.interval
    return f"Against {speed.recipe}: {times(speed.ratio)} its speed ({low:.2f} to {high:.2f})."


def _arms(benchmark: BenchmarkEvidence | None) -> tuple[Floats, Floats] | None:
    if benchmark is None or benchmark.state != "completed" or benchmark.numerics == "emulated":
        return None
    baseline, candidate = (throughputs(benchmark.blocks, "compute", arm) for arm in ("baseline", "candidate"))
    if min(baseline.size, candidate.size) < MIN_BLOCKS or min(np.median(baseline), np.median(candidate)) <= 0.0:
        return None
    return baseline, candidate
