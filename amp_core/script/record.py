"""The telemetry of a script: the same series and events as the engine's own loop, from what the script's steps show."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_core.config import RunConfig
from amp_core.events import Evaluated, Event, Finished, NonFinite, StepSkipped
from amp_core.scaler import StepOutcome
from amp_core.script.closeup import ScriptCloseUp
from amp_core.script.prepared import Prepared
from amp_core.telemetry.memory import device_peak_bytes, process_bytes
from amp_core.telemetry.recorder import Recorder, StepRecord
from amp_core.telemetry.skips import SkipWatch
from amp_core.telemetry.timing import Duration
from amp_core.telemetry.watch import DEAD_STEPS, NonFiniteWatch, spell

GATHER_EVERY = 25
WARMUP_STEPS = 3
LAST_LOSSES = 20  # whose mean is the result of a script that evaluates nothing
COUNTED = ("number", "samples", "lost_samples", "skipped_steps", "train_s", "warmup_s", "metrics")  # in checkpoints


@dataclass(frozen=True, kw_only=True)
class DoneStep:
    """What one step of the script left behind, on the device."""

    loss: Tensor
    norms: Tensor | None
    outcome: StepOutcome | None
    num_samples: int
    duration: Duration
    iteration_s: float
    learning_rate: float | None


class ScriptRecord:
    """Turns the steps of a script into series and events, which go to ``send``."""

    def __init__(self, config: RunConfig, send: Callable[[Event], None], prepared: Prepared) -> None:
        self._config, self._send = config, send
        self._precision, self._device = prepared.precision, prepared.precision.device
        self.recorder = Recorder()
        self.close_up = ScriptCloseUp(config, prepared, self.recorder)
        self.watch = NonFiniteWatch(prepared.model, prepared.parameters)
        self.skips = SkipWatch(config.recipe.scaler if prepared.scaler is not None else None)
        self.metrics: dict[str, float] = {}
        self._num_evaluated = 0
        self._last_losses: deque[float] = deque(maxlen=LAST_LOSSES)
        self.number = self.samples = self.lost_samples = self.skipped_steps = 0
        self.train_s = self.warmup_s = 0.0
        self._flushed_number = 0
        self._flushed_at = time.perf_counter()

    @property
    def stopped(self) -> str:
        """Why the run should end before its last step, or nothing."""
        dead = self.watch.dead_since
        if dead is not None and self.number >= dead + DEAD_STEPS:
            return f"Weights have not been finite since step {dead}: nothing brings them back."
        skips = self.skips.stopped
        return skips.diagnosis if skips is not None and self.number % GATHER_EVERY == 0 else ""

    def note(self, done: DoneStep) -> None:
        """A step has ended. Looks at the device's numbers and hands them over when that is due."""
        self.number += 1
        self.samples += done.num_samples
        self.train_s += done.iteration_s
        if self.number <= WARMUP_STEPS:
            self.warmup_s += done.iteration_s
        if done.learning_rate is not None:
            self.recorder.add("optim/learning_rate", self.number, done.learning_rate)
        is_watched = self.close_up.is_due(self.number)
        self.recorder.note(
            StepRecord(
                step=self.number, at=time.time(), loss=done.loss, norms=done.norms, outcome=done.outcome,
                num_samples=done.num_samples, duration=None if is_watched else done.duration,
                iteration_s=done.iteration_s,
            )
        )  # fmt: skip
        if is_watched:
            scale = 1.0 if done.outcome is None else float(done.outcome.scale_before)
            for event in self.close_up.events(self.number, scale):
                self._send(event)
        due = time.perf_counter() - self._flushed_at >= self._config.flush_interval_s
        if due or self.number % GATHER_EVERY == 0:
            self.gather()
        if due:
            self.flush()

    def gather(self) -> None:
        """Bring the device's numbers over and say what happened."""
        steps = self.recorder.gather()
        self._last_losses.extend(steps.losses)
        for name, value in self._precision.figures().items():
            self.recorder.add(name, self.number, value)
        for step in () if steps.are_ordinary else steps:
            if step.skipped:
                self.skipped_steps += 1
                self.lost_samples += step.num_samples
                self._send(StepSkipped(step=step.step, scale_before=step.scale_before, scale_after=step.scale_after))
        for event in [*self.skips.observe(steps), *self.watch.observe(steps)]:
            self._send(event)

    def flush(self) -> None:
        """Hand over every point so far."""
        if self.number > self._flushed_number:
            self.recorder.add("memory/process_bytes", self.number, float(process_bytes()))
            if self._device.type == "cuda":
                self.recorder.add("memory/allocated_bytes", self.number, float(device_peak_bytes(self._device)))
            self.close_up.add_gauges(self.number)
        self._flushed_number = self.number
        self._flushed_at = time.perf_counter()
        segment = self.recorder.segment()
        if segment is not None:
            self._send(self.close_up.with_rates(segment))

    def evaluated(self, metrics: dict[str, float], num_samples: int) -> None:
        """Metrics of an evaluation after the last step done."""
        self.gather()
        for name, value in metrics.items():
            self.recorder.add(f"eval/{name}", self.number, value)
            if not math.isfinite(value):
                self._send(NonFinite(step=self.number, where="evaluation", name=name, value=spell(value)))
        self.metrics, self._num_evaluated = metrics, num_samples
        self._send(Evaluated(step=self.number, metrics=metrics, num_samples=num_samples, final=False))

    def rest(self) -> None:
        """Hand over what is left when a run ends early; after a fault of the device there may be nothing."""
        with contextlib.suppress(RuntimeError):
            self.gather()
            self.flush()

    def end(self, stopped: str) -> None:
        """Hand over the rest, the last metrics as the final ones, and the run's last event.

        A script that evaluated nothing has ``train_loss``, the mean of its last losses.
        """
        self.gather()
        if not self.metrics and self._last_losses:
            self.metrics = {"train_loss": sum(self._last_losses) / len(self._last_losses)}
        if self.metrics:
            self._send(Evaluated(step=self.number, metrics=self.metrics, num_samples=self._num_evaluated, final=True))
        self.flush()
        self._send(
            Finished(
                metrics=self.metrics, steps=self.number, skipped_steps=self.skipped_steps, samples=self.samples,
                lost_samples=self.lost_samples, train_s=self.train_s, warmup_s=self.warmup_s, stopped=stopped,
            )
        )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain data."""
        counts = {name: getattr(self, name) for name in COUNTED}
        watches = {"watch": self.watch.state(), "skips": self.skips.state(), "close_up": self.close_up.state()}
        return {**counts, **watches}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in COUNTED:
            setattr(self, name, state[name])
        self.watch.load_state(state["watch"])
        self.skips.load_state(state["skips"])
        if "close_up" in state:  # absent in checkpoints of before it was there
            self.close_up.load_state(state["close_up"])
        self._flushed_number = self.number


def total_of(losses: Sequence[Tensor], device: torch.device) -> Tensor:
    """The sum of what one step propagated back: with losses divided by the number of batches, their mean; `()`."""
    if not losses:
        return torch.full((), math.nan, device=device)
    if len(losses) == 1:
        return losses[0]
    return torch.stack([loss.float() for loss in losses]).sum()
