"""The training loop: a configuration and a workload in, typed events out. No logging; no I/O but checkpoints."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from amp_core.checkpoints import Checkpoints, load_first
from amp_core.config import RunConfig
from amp_core.environment import environment
from amp_core.errors import Interrupted, NotResumable
from amp_core.evaluation import Evaluation
from amp_core.events import (
    Artifact,
    Checkpointed,
    Evaluated,
    Event,
    Finished,
    NoCheckpoint,
    NonFinite,
    Started,
    StepSkipped,
)
from amp_core.forensics.in_run import FaultWatch
from amp_core.forking import begin, built
from amp_core.precision import Precision, precision_for
from amp_core.resume import capture, restore, set_rng_states
from amp_core.setup import device_named
from amp_core.step import TrainStep
from amp_core.telemetry.closeup import CloseUp
from amp_core.telemetry.memory import device_peak_bytes, process_bytes
from amp_core.telemetry.numerics import NumericsSampler
from amp_core.telemetry.recorder import Recorder, StepRecord
from amp_core.telemetry.skips import SkipWatch
from amp_core.telemetry.timing import timer_for
from amp_core.telemetry.watch import DEAD_STEPS, NonFiniteWatch, spell
from amp_core.training_data import TrainingData
from amp_core.workload import Workload

GATHER_EVERY = 25  # steps between two looks at the device's numbers: what is seen when depends on steps, not on time
WARMUP_STEPS = 3
COUNTED = ("number", "samples", "lost_samples", "skipped_steps", "train_s", "warmup_s", "metrics")  # in checkpoints


def never() -> bool:
    """Nobody asks this run to pause."""
    return False


def train(
    config: RunConfig,
    workload: Workload,
    checkpoints: Checkpoints | None = None,
    pause_asked: Callable[[], bool] = never,
) -> Iterator[Event]:
    """Train and report: `Started`, then segments and facts as they come, then `Finished`.

    A non-finite loss does not stop the run; it goes on to the horizon unless weights have been non-finite for
    `DEAD_STEPS` steps, or skipped steps repeat without end (`SkipsRepeat`). Closing the iterator ends the run at once;
    throwing `Interrupted` into it ends it too, after handing over every point so far. Points are handed over before an
    error of the workload is raised as well. With ``checkpoints`` the run writes some, as the configuration says, and
    with ``resume_from`` it goes on where one was made: the events are then those of the steps that were left. Once
    ``pause_asked`` is true, the step at hand is the last: a checkpoint is written, if there are any, and the run ends.

    Raises:
        RecipeError: if the device cannot run the recipe.
        WorkloadError: if the workload breaks its contract.
        ForkError: if it is to begin at another run's checkpoint, which is not there or does not fit.
    """
    began = time.perf_counter()
    device = device_named(config.device)
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    precision = precision_for(config.recipe, device)
    training, refused = _prepared(config, workload, precision, checkpoints)
    training.pause_asked = pause_asked
    faults = FaultWatch(config, workload, training)
    try:
        yield from _trained(training, faults, precision, began, refused)
    except Interrupted:
        raise
    except Exception as error:
        yield from faults.diagnoses(error)
        raise
    if faults.finished is not None:
        yield from faults.diagnoses()
        yield faults.finished


def _trained(
    training: Training, faults: FaultWatch, precision: Precision, began: float, refused: list[str]
) -> Iterator[Event]:
    """Every event of the training itself but the last."""
    config = training.config
    with precision.applied(training.step.model):
        started = Started(
            numerics=precision.numerics,
            environment=environment(precision, config.workload.path),
            num_parameters=sum(p.numel() for p in training.step.model.parameters()),
            setup_s=time.perf_counter() - began,
            resumed_step=training.number,
            not_resumed=" ".join(f"{reason}." for reason in refused),
        )
        yield from faults.following(training.events(started))


def _prepared(
    config: RunConfig, workload: Workload, precision: Precision, checkpoints: Checkpoints | None
) -> tuple[Training, list[str]]:
    """A training at its start, or where its checkpoint was made; and why checkpoints were passed over."""
    state, refused = load_first(config.resume_from)
    while True:
        training = Training(config, built(config, workload, precision), checkpoints)
        if state is None:
            begin(config, training.step, training.data)
            return training, refused
        try:
            training.resume(state)
        except NotResumable as error:
            refused.append(str(error))
            state = None  # and build anew: this step may hold half of it
        else:
            return training, refused


class Training:
    """The state of one run between its steps."""

    def __init__(self, config: RunConfig, step: TrainStep, checkpoints: Checkpoints | None = None) -> None:
        self.config = config
        self.step = step
        self.data = TrainingData(step.workload, config.seed)
        self.checkpoints = checkpoints
        self.checkpointed_at = time.perf_counter()
        self.device = step.precision.device
        self.recorder = Recorder()
        self.watch = NonFiniteWatch(step.model, step.parameters)
        self.skips = SkipWatch(config.recipe.scaler if step.scaler is not None else None)
        sampler = NumericsSampler(step.precision, config.numerics_every, config.steps, self.recorder)
        self.closeup = CloseUp(step, sampler, self.recorder)
        self.evaluation = Evaluation(step.workload, step.precision, self.device, config.seed, step.real_steps.ema)
        self.timer = timer_for(self.device)
        self.pause_asked: Callable[[], bool] = never
        self.metrics: dict[str, float] = {}
        self.samples = self.lost_samples = self.skipped_steps = 0
        self.train_s = self.warmup_s = 0.0
        self.number = 0  # the last step done
        self.flushed_number = 0
        self.flushed_at = self.stepped_at = time.perf_counter()

    def events(self, started: Started) -> Iterator[Event]:
        """Every event of the run, in order."""
        try:
            yield started
            yield from self._run()
            yield from self._artifacts()
            yield self._finished()
        except Interrupted:
            yield from self._rest()
        except Exception:
            yield from self._rest()
            raise

    def _run(self) -> Iterator[Event]:
        while self.number < self.config.steps and not self._stopped():
            events = self._train_one(self.number + 1)
            if events:
                yield from events
            evaluate = self._evaluation_due()
            due = self.stepped_at - self.flushed_at >= self.config.flush_interval_s
            if evaluate or due or self.number % GATHER_EVERY == 0:
                yield from self._gather()
            if evaluate:
                yield from self._evaluate(final=False)
            if due:
                yield from self._flush()
            pausing = self.number < self.config.steps and self.pause_asked()
            if self.checkpoints is not None and (pausing or self._checkpoint_due()):
                yield from self._checkpoint(self.checkpoints)
            if pausing:
                raise Interrupted
        yield from self._gather()
        yield from self._evaluate(final=True)
        yield from self._flush()

    def _rest(self) -> Iterator[Event]:
        """What has not been handed over when a run ends early; after a fault of the device there may be nothing."""
        with contextlib.suppress(RuntimeError):
            yield from [*self._gather(), *self._flush()]

    def _evaluation_due(self) -> bool:
        every = self.config.eval_every
        return every > 0 and self.number % every == 0 and self.number < self.config.steps

    def _stopped(self) -> str:
        """Why the run ends before its last step, or nothing."""
        if self.watch.dead_since is not None and self.number >= self.watch.dead_since + DEAD_STEPS:
            return f"Weights have not been finite since step {self.watch.dead_since}: nothing brings them back."
        skips = self.skips.stopped
        return skips.diagnosis if skips is not None and self.number % GATHER_EVERY == 0 else ""

    def _checkpoint_due(self) -> bool:
        if self.number in self.config.keep_steps:
            return True
        if self.number >= self.config.steps:
            return False
        every = self.config.checkpoint_every_steps
        if every and self.number % every == 0:
            return True
        return self.stepped_at - self.checkpointed_at >= self.config.checkpoint_every_s

    def _checkpoint(self, checkpoints: Checkpoints) -> Iterator[Event]:
        """Say everything up to this step, then write the checkpoint, so that who knows of it knows the rest."""
        yield from self._gather()
        yield from self._flush()
        began = time.perf_counter()
        state = self._state()
        try:
            written = checkpoints.save(self.number, state)
        except (NotResumable, OSError) as error:
            final = isinstance(error, NotResumable)
            self.checkpoints = None if final else checkpoints
            yield NoCheckpoint(step=self.number, message=str(error), final=final)
        else:
            seconds = time.perf_counter() - began
            yield Checkpointed(
                step=self.number,
                path=str(written.path),
                num_bytes=written.num_bytes,
                seconds=seconds,
                kept=self.number in self.config.keep_steps,
            )
        self.checkpointed_at = time.perf_counter()

    def _state(self) -> dict[str, Any]:
        """All that a checkpoint holds."""
        return {**capture(self.config, self.step), "data": self.data.position(), "progress": self._progress()}

    def _progress(self) -> dict[str, Any]:
        """Where the record of the run stands, as plain data."""
        counts = {name: getattr(self, name) for name in COUNTED}
        watches = {name: getattr(self, name).state() for name in ("watch", "skips", "closeup")}
        return {**counts, **watches}

    def resume(self, state: dict[str, Any]) -> None:
        """Go to where a checkpoint was made. Raises `NotResumable`; the training is then of no use."""
        restore(self.config, self.step, state)
        self.data.forward_to(state["data"])
        progress = state["progress"]
        for name in COUNTED:
            setattr(self, name, progress[name])
        for name in ("watch", "skips", "closeup"):
            getattr(self, name).load_state(progress[name])
        self.flushed_number = self.number
        set_rng_states(state["rng"], self.device)

    def _train_one(self, number: int) -> Sequence[Event]:
        """One iteration: the hot path, where a microsecond counts; what can wait is done when steps are gathered."""
        step = self.step
        began = time.perf_counter()
        taken = step.take(self.data)
        size = step.num_samples(taken)
        watched = self.closeup.due(number)
        events: Sequence[Event] = ()
        self.timer.start()
        if watched:
            loss, events = self.closeup.backward(number, taken)
        else:
            loss = step.backward(taken)
        norms = step.gradient_norms()
        if step.real_steps.schedules:
            self.recorder.add("optim/learning_rate", number, step.learning_rate())
        outcome = step.update(norms)
        self.timer.stop()
        step.clear()
        duration = self.timer.take()
        self.stepped_at = time.perf_counter()
        iteration_s = self.stepped_at - began
        self.number = number
        self.samples += size
        self.train_s += iteration_s
        if number <= WARMUP_STEPS:
            self.warmup_s += iteration_s
        alone = None if watched else duration
        self.recorder.note(StepRecord(number, time.time(), loss, norms, outcome, size, alone, iteration_s))
        return events

    def _gather(self) -> Iterator[Event]:
        """Bring the device's numbers over and turn what happened into events."""
        steps = self.recorder.gather()
        for name, value in self.step.precision.figures().items():
            self.recorder.add(name, self.number, value)
        for step in () if steps.are_ordinary else steps:
            if step.skipped:
                self.skipped_steps += 1
                self.lost_samples += step.num_samples
                yield StepSkipped(step=step.step, scale_before=step.scale_before, scale_after=step.scale_after)
        yield from self.skips.observe(steps)
        yield from self.watch.observe(steps)

    def _evaluate(self, final: bool) -> Iterator[Event]:
        self.step.real_steps.settle()
        metrics, num_samples = self.evaluation.metrics(self.step.model)
        for name, value in metrics.items():
            self.recorder.add(f"eval/{name}", self.number, value)
            if not math.isfinite(value):
                yield NonFinite(step=self.number, where="evaluation", name=name, value=spell(value))
        self.metrics = metrics
        yield Evaluated(step=self.number, metrics=metrics, num_samples=num_samples, final=final)

    def _flush(self) -> Iterator[Event]:
        if self.number > self.flushed_number:  # the last flush may follow another one of the same step
            self.recorder.add("memory/process_bytes", self.number, float(process_bytes()))
            if self.device.type == "cuda":
                self.recorder.add("memory/allocated_bytes", self.number, float(device_peak_bytes(self.device)))
            self.closeup.add_gauges(self.number)
        self.flushed_number = self.number
        segment = self.recorder.segment()
        self.flushed_at = time.perf_counter()
        if segment is not None:
            yield self.closeup.with_rates(segment)

    def _artifacts(self) -> Iterator[Event]:
        for name, content in self.evaluation.artifacts(self.step.model).items():
            yield Artifact(name=name, media_type="image/png", content=content, step=self.number)

    def _finished(self) -> Finished:
        return Finished(
            metrics=self.metrics,
            steps=self.number,
            skipped_steps=self.skipped_steps,
            samples=self.samples,
            lost_samples=self.lost_samples,
            train_s=self.train_s,
            warmup_s=self.warmup_s,
            stopped=self._stopped() if self.number < self.config.steps else "",
        )
