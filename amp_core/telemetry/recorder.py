"""Points of a run between two flushes: scalars stay tensors on the device until they are gathered together."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import hypot
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from amp_core.events import Column, Segment
from amp_core.scaler import StepOutcome
from amp_core.telemetry.timing import Duration, seconds


class StepRecord(NamedTuple):
    """What a step left behind, still on the device. ``norms``: each parameter's gradient norm, `(P,)` or P `()`."""

    step: int
    at: float
    loss: Tensor
    norms: Tensor | Sequence[Tensor] | None
    outcome: StepOutcome | None
    num_samples: int
    duration: Duration | None  # of the step alone; None on steps that were watched more closely
    iteration_s: float  # of the whole iteration, data loading included


@dataclass(frozen=True, slots=True)
class GatheredStep:
    """A `StepRecord` as numbers. ``norms`` is empty without gradients; ``skipped`` is False where nothing can skip."""

    step: int
    loss: float
    norms: list[float]
    skipped: bool
    scale_before: float
    scale_after: float
    num_samples: int


class GatheredSteps:
    """The numbers of some steps, in columns; iterating makes a `GatheredStep` of each, which few readers need.

    ``are_ordinary``: there are some, and every loss and gradient norm is finite and no step was skipped.
    """

    def __init__(self, records: Sequence[StepRecord]) -> None:
        """Bring the numbers over, in as few transfers as there are kinds of them."""
        self.records = records
        self.losses = _numbers([record.loss for record in records])
        self.norms = _norms_of(records)
        outcomes = [record.outcome for record in records if record.outcome is not None]
        self.skipped = [found > 0 for found in _numbers([outcome.found_inf for outcome in outcomes])]
        self.scales_before = _numbers([outcome.scale_before for outcome in outcomes])
        self._scales_after = _numbers([outcome.scale_after for outcome in outcomes])
        finite = math.isfinite(sum(self.losses)) and math.isfinite(sum(map(sum, self.norms)))
        self.are_ordinary = finite and bool(records) and not any(self.skipped)

    def __iter__(self) -> Iterator[GatheredStep]:
        norms = iter(self.norms)
        scaled = zip(self.skipped, self.scales_before, self._scales_after, strict=True)
        for record, loss in zip(self.records, self.losses, strict=True):
            skipped, before, after = next(scaled) if record.outcome is not None else (False, 1.0, 1.0)
            yield GatheredStep(
                step=record.step,
                loss=loss,
                norms=next(norms) if record.norms is not None else [],
                skipped=skipped,
                scale_before=before,
                scale_after=after,
                num_samples=record.num_samples,
            )


class Recorder:
    """Collects points by series and hands them over as segments."""

    def __init__(self) -> None:
        self._waiting: list[StepRecord] = []
        self._points: dict[str, tuple[list[int], list[float], list[float]]] = {}
        self.note = self._waiting.append  # keep a step's figures; nothing waits for the device

    def add(self, name: str, step: int, value: float, at: float | None = None) -> None:
        """Add one point of one series."""
        self._add_column(name, [step], [value], [time.time() if at is None else at])

    def gather(self) -> GatheredSteps:
        """Bring over what waits, and add its points."""
        steps = GatheredSteps(self._waiting.copy())
        self._waiting.clear()
        records = steps.records
        self._add_steps("train/loss", records, steps.losses)
        self._add_steps(
            "grad/norm", [r for r in records if r.norms is not None], [hypot(*norms) for norms in steps.norms]
        )
        scaled = [record for record in records if record.outcome is not None]
        self._add_steps("amp/loss_scale", scaled, steps.scales_before)
        self._add_steps("amp/skipped", scaled, list(map(float, steps.skipped)))
        timed = [record for record in records if record.duration is not None]
        durations = [seconds(record.duration) for record in timed if record.duration is not None]
        self._add_steps("perf/step_time_s", timed, durations)
        self._add_steps("perf/samples_per_s", timed, [record.num_samples / record.iteration_s for record in timed])
        return steps

    def _add_steps(self, name: str, records: Sequence[StepRecord], values: list[float]) -> None:
        if records:
            self._add_column(name, [record.step for record in records], values, [record.at for record in records])

    def _add_column(self, name: str, steps: list[int], values: list[float], times: list[float]) -> None:
        held = self._points.setdefault(name, ([], [], []))
        held[0].extend(steps)
        held[1].extend(values)
        held[2].extend(times)

    def segment(self) -> Segment | None:
        """Everything gathered since the last call, or None if there is nothing."""
        points, self._points = self._points, {}
        if not points:
            return None
        return Segment(
            columns=[
                Column(
                    name=name,
                    steps=np.asarray(steps, dtype="<i8").tobytes(),
                    values=np.asarray(values, dtype="<f8").tobytes(),
                    times=np.asarray(times, dtype="<f8").tobytes(),
                )
                for name, (steps, values, times) in points.items()
            ]
        )


def _norms_of(records: Sequence[StepRecord]) -> list[list[float]]:
    """The norms of the steps that have any, step by step."""
    norms = [record.norms for record in records if record.norms is not None]
    numbers = iter(_numbers([norm for step in norms for norm in step]))
    return [list(islice(numbers, len(step))) for step in norms]


def _numbers(tensors: list[Tensor]) -> list[float]:
    """Scalars of one device as numbers; waits for the device once. On a CPU reading each is cheaper than stacking."""
    if tensors and tensors[0].device.type != "cpu":
        return torch.stack(tensors).double().tolist()
    return [tensor.item() for tensor in tensors]
