"""FLOP/s and MFU of the steps of a flush, from the FLOPs of the one step whose operations were seen."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from amp_core.events import Column, Segment
from amp_core.telemetry.peaks import Peak

STEP_TIME = "perf/step_time_s"
TERA = 1e12


def ideal_s(flops: Mapping[str, int], peak: Peak | None) -> float | None:
    """Seconds the products would take at the peak of the type each computed in; None without a peak for one of them.

    FLOPs utilisation as in PaLM (Chowdhery et al. 2022, appendix B), for several types: the ideal time by the real one.
    """
    total = 0.0
    for dtype, count in flops.items():
        rates = [] if peak is None else [rate for name, rate in peak.flops_per_s.items() if dtype.startswith(name)]
        if not rates:
            return None
        total += count / rates[0]
    return total


def with_rates(segment: Segment, flops: Mapping[str, int], peak: Peak | None) -> Segment:
    """The segment with `perf/tflops_per_s` and, where there is a peak, `perf/mfu` at its last timed step.

    The time is the mean over the steps of the segment; without FLOPs or without timed steps nothing is added.
    """
    timed = next((column for column in segment.columns if column.name == STEP_TIME), None)
    total = sum(flops.values())
    if timed is None or not timed.values or not total:
        return segment
    mean = float(np.frombuffer(timed.values, dtype="<f8").mean())
    if not mean > 0.0:
        return segment
    figures = {"perf/tflops_per_s": total / mean / TERA}
    ideal = ideal_s(flops, peak)
    if ideal is not None:
        figures["perf/mfu"] = ideal / mean
    added = [
        Column(
            name=name,
            steps=timed.steps[-8:],
            values=np.asarray([value], dtype="<f8").tobytes(),
            times=timed.times[-8:],
        )
        for name, value in figures.items()
    ]
    return msgspec.structs.replace(segment, columns=[*segment.columns, *added])
