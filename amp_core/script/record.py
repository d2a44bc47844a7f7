"""The telemetry of a script: the same series and events as the engine's own loop, from what the script's steps show."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.config import RunConfig
from amp_core.events import Evaluated, Event, Finished, NonFinite, Numerics, StepSkipped, ZeroGradients
from amp_core.precision import Precision
from amp_core.scaler import StepOutcome
from amp_core.telemetry.gradients import GradientCounts, count_gradients, owners
from amp_core.telemetry.memory import SavedBytes, device_peak_bytes, process_bytes
from amp_core.telemetry.numerics import PROBE_SCALE, ZERO_FRACTION, fp16_underflow_fraction
from amp_core.telemetry.recorder import Recorder, StepRecord
from amp_core.telemetry.skips import SkipWatch
from amp_core.telemetry.timing import Duration
from amp_core.telemetry.watch import DEAD_STEPS, NonFiniteWatch, spell

GATHER_EVERY = 25
WARMUP_STEPS = 3
SAVED_BYTES_STEP = 2
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

    def __init__(
        self,
        config: RunConfig,
        send: Callable[[Event], None],
        model: nn.Module,
        parameters: Sequence[nn.Parameter],
        precision: Precision,
        *,
        scales: bool,
    ) -> None:
        self._config, self._send, self._model, self._precision = config, send, model, precision
        self.recorder = Recorder()
        self.watch = NonFiniteWatch(model, parameters)
        self.skips = SkipWatch(config.recipe.scaler if scales else None)
        self._owned = owners(model)
        self._counts: dict[str, GradientCounts] = {}
        self._reported_zeros: set[str] = set()
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

    @contextlib.contextmanager
    def saved_bytes(self) -> Iterator[None]:
        """Measure what the step that begins now keeps for backward, if it is the one to be measured."""
        number = self.number + 1
        if number != SAVED_BYTES_STEP or self._config.recipe.compile:
            yield
            return
        saved = SavedBytes(self._model, until_backward=True)
        with saved.measured():
            yield
        self.recorder.add("memory/saved_for_backward_bytes", number, float(saved.total))

    def look_at_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Count the unscaled gradients of one optimizer, on sampled steps; waits for the device there."""
        number = self.number + 1
        if number != 1 and number % max(1, self._config.numerics_every) and number != self._config.steps:
            return
        mine = {id(p) for p in parameters}
        owned = [owner for owner in self._owned if any(id(p) in mine for p in owner.parameters)]
        lowers = self._precision.lowers
        for count in count_gradients(owned, None if lowers else owned):
            self._counts[count.module] = count
        if not lowers:
            self.recorder.add("grad/fp16_underflow_fraction", number, fp16_underflow_fraction(owned))

    def note(self, done: DoneStep) -> None:
        """A step has ended. Looks at the device's numbers and hands them over when that is due."""
        self.number += 1
        self.samples += done.num_samples
        self.train_s += done.iteration_s
        if self.number <= WARMUP_STEPS:
            self.warmup_s += done.iteration_s
        if done.learning_rate is not None:
            self.recorder.add("optim/learning_rate", self.number, done.learning_rate)
        self.recorder.note(
            StepRecord(
                step=self.number, at=time.time(), loss=done.loss, norms=done.norms, outcome=done.outcome,
                num_samples=done.num_samples, duration=None if self._counts else done.duration,
                iteration_s=done.iteration_s,
            )
        )  # fmt: skip
        if self._counts:
            self._numerics(done)
        due = time.perf_counter() - self._flushed_at >= self._config.flush_interval_s
        if due or self.number % GATHER_EVERY == 0:
            self.gather()
        if due:
            self.flush()

    def gather(self) -> None:
        """Bring the device's numbers over and say what happened."""
        steps = self.recorder.gather()
        self._last_losses.extend(step.loss for step in steps)
        for step in steps:
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
            if self._precision.device.type == "cuda":
                peak = float(device_peak_bytes(self._precision.device))
                self.recorder.add("memory/allocated_bytes", self.number, peak)
        self._flushed_number = self.number
        self._flushed_at = time.perf_counter()
        segment = self.recorder.segment()
        if segment is not None:
            self._send(segment)

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
        zeros = sorted(self._reported_zeros)
        return {**counts, "watch": self.watch.state(), "skips": self.skips.state(), "reported_zeros": zeros}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in COUNTED:
            setattr(self, name, state[name])
        self.watch.load_state(state["watch"])
        self.skips.load_state(state["skips"])
        self._reported_zeros = set(state["reported_zeros"])
        self._flushed_number = self.number

    def _numerics(self, done: DoneStep) -> None:
        counts, self._counts = list(self._counts.values()), {}
        scale = 1.0 if done.outcome is None else float(done.outcome.scale_before)
        self._send(Numerics(step=self.number, loss_scale=scale, modules=[count.statistics() for count in counts]))
        zeros = {count.module: count.zero_fraction for count in counts if count.zero_fraction >= ZERO_FRACTION}
        if zeros.keys() - self._reported_zeros:
            self._reported_zeros |= zeros.keys()
            self._send(ZeroGradients(step=self.number, zero_fraction=zeros, probe_scale=PROBE_SCALE, probe={}))


def total_of(losses: Sequence[Tensor], device: torch.device) -> Tensor:
    """The sum of what one step propagated back: with losses divided by the number of batches, their mean; `()`."""
    if not losses:
        return torch.full((), math.nan, device=device)
    if len(losses) == 1:
        return losses[0]
    return torch.stack([loss.float() for loss in losses]).sum()
