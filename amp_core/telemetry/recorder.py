"""Points of a run between two flushes: scalars stay tensors on the device until they are gathered together."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from amp_core.events import Column, Segment
from amp_core.scaler import StepOutcome
from amp_core.telemetry.timing import Duration, seconds


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What a step left behind, still on the device. ``norms``: the gradient norm of each parameter, `(P,)`."""

    step: int
    at: float
    loss: Tensor
    norms: Tensor | None
    outcome: StepOutcome | None
    num_samples: int
    duration: Duration | None  # of the step alone; None on steps that were watched more closely
    iteration_s: float  # from the end of the step before to the end of this one, data loading included


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


class Recorder:
    """Collects points by series and hands them over as segments."""

    def __init__(self) -> None:
        self._waiting: list[StepRecord] = []
        self._points: dict[str, tuple[list[int], list[float], list[float]]] = {}

    def note(self, record: StepRecord) -> None:
        """Keep a step's figures; nothing waits for the device."""
        self._waiting.append(record)

    def add(self, name: str, step: int, value: float, at: float | None = None) -> None:
        """Add one point of one series."""
        steps, values, times = self._points.setdefault(name, ([], [], []))
        steps.append(step)
        values.append(value)
        times.append(time.time() if at is None else at)

    def gather(self) -> list[GatheredStep]:
        """Bring over what waits, in as few transfers as there are kinds of figures, and add its points."""
        records, self._waiting = self._waiting, []
        if not records:
            return []
        losses = _numbers([record.loss for record in records])
        norms = iter(_numbers([record.norms for record in records if record.norms is not None]))
        outcomes = [record.outcome for record in records if record.outcome is not None]
        found = iter(_numbers([outcome.found_inf for outcome in outcomes]))
        before = iter(_numbers([outcome.scale_before for outcome in outcomes]))
        after = iter(_numbers([outcome.scale_after for outcome in outcomes]))
        steps = []
        for record, loss in zip(records, losses, strict=True):
            scaled = record.outcome is not None
            step = GatheredStep(
                step=record.step,
                loss=loss,
                norms=next(norms) if record.norms is not None else [],
                skipped=scaled and next(found) > 0,
                scale_before=next(before) if scaled else 1.0,
                scale_after=next(after) if scaled else 1.0,
                num_samples=record.num_samples,
            )
            self._add_step(record, step, scaled)
            steps.append(step)
        return steps

    def _add_step(self, record: StepRecord, step: GatheredStep, scaled: bool) -> None:
        self.add("train/loss", step.step, step.loss, record.at)
        if record.norms is not None:
            self.add("grad/norm", step.step, float(np.linalg.norm(np.asarray(step.norms))), record.at)
        if scaled:
            self.add("amp/loss_scale", step.step, step.scale_before, record.at)
            self.add("amp/skipped", step.step, float(step.skipped), record.at)
        if record.duration is not None:
            self.add("perf/step_time_s", step.step, seconds(record.duration), record.at)
            self.add("perf/samples_per_s", step.step, record.num_samples / record.iteration_s, record.at)

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


def _numbers(tensors: list[Tensor]) -> list:  # type: ignore[type-arg]  # floats, or lists of them for vectors
    return torch.stack(tensors).double().tolist() if tensors else []
