"""Diagnoses of a run, made by its own child after its last step: nothing of this runs while the training is healthy.

`FaultWatch` passes the events of a training on and notes what went wrong. Afterwards the training is repeated from the
last good state as far as the fault, and the steps around it are a subject for forensics.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any, Protocol, cast

import numpy as np

from amp_core.checkpoints import load_first
from amp_core.config import RunConfig
from amp_core.errors import AmpError, Interrupted
from amp_core.events import Artifact, Checkpointed, Diagnosis, Event, Finished, Segment
from amp_core.forensics.last_good import LastGood
from amp_core.forensics.layers import layer_report
from amp_core.forensics.run_diagnosis import diagnose_scene
from amp_core.forensics.scene import Scene, find_scene, state_of, subject_of
from amp_core.forensics.subject import stored_low
from amp_core.forensics.suspicions import Suspicion, Suspicions
from amp_core.step import TrainStep
from amp_core.training_data import TrainingData
from amp_core.workload import Workload

MAX_DIAGNOSES = 3
HORIZON = 6  # steps from the fault on that every arm repeats
SHARE_FOR_RERUN = 0.6  # of the time that is left
NUM_EVAL_BATCHES = 8
Load = Callable[[], dict[str, Any] | None]


class Training(Protocol):
    """What is needed of a training in progress."""

    number: int
    step: TrainStep
    data: TrainingData


class FaultWatch:
    """Follows one run. ``finished`` is its last event, held back until the diagnoses are made."""

    def __init__(self, config: RunConfig, workload: Workload, training: Training) -> None:
        self.finished: Finished | None = None
        self._config, self._workload, self._training = config, workload, training
        self._good = LastGood(config)
        self._suspicions = Suspicions()
        self._checkpoints: list[tuple[int, str]] = []
        self._began_at = training.number
        self._first_loss = math.nan

    def following(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events but `Finished`; an `Interrupted` thrown in reaches the training."""
        generator = cast("Generator[Event, None, None]", events)
        thrown: Interrupted | None = None
        while True:
            try:
                event = next(generator) if thrown is None else generator.throw(thrown)
            except StopIteration:
                return
            thrown = None
            self._note(event)
            if isinstance(event, Finished):
                self.finished = event
                continue
            try:
                yield event
            except Interrupted as error:
                thrown = error

    def _note(self, event: Event) -> None:
        self._suspicions.note(event)
        if isinstance(event, Checkpointed):
            self._checkpoints.append((event.step, event.path))
        elif isinstance(event, Segment) and not self._suspicions and self._config.diagnose_s > 0:
            self._note_first_loss(event)
            self._good.consider(self._training.number, self._training.step, self._training.data)

    def _note_first_loss(self, event: Segment) -> None:
        losses = [column for column in event.columns if column.name == "train/loss"]
        if losses and math.isnan(self._first_loss):
            self._first_loss = float(np.frombuffer(losses[0].values, dtype="<f8", count=1)[0])

    def diagnoses(self, error: Exception | None = None) -> Iterator[Event]:
        """The diagnoses of what was seen, each with the artifact that reproduces it; or the layers of a quiet run.

        ``error`` is what ended the run, if something did. What goes wrong in here is a warning: the run has its result.
        """
        if self._config.diagnose_s <= 0 or (error is not None and not _may_be_numeric(error)):
            return
        try:
            yield from self._made(time.monotonic() + self._config.diagnose_s, error)
        except Exception as fault:  # noqa: BLE001 - the workload's own code runs here once more
            if error is not None:
                return  # it stops elsewhere once more: what ended the run is said by the run itself
            warnings.warn(f"no diagnosis of this run: {type(fault).__name__}: {fault}", stacklevel=2)

    def _made(self, deadline: float, error: Exception | None) -> Iterator[Event]:
        if error is not None:
            self._suspicions.add("error", self._training.number + 1)
        elif not self._suspicions and self._training.number and self._training.step.precision.lowers:
            yield from self._look_closer(deadline)
        found: set[tuple[Any, ...]] = set()
        for suspicion in self._suspicions.ordered()[:MAX_DIAGNOSES]:
            for event in self._diagnosed(suspicion, deadline):
                if isinstance(event, Diagnosis):
                    key = (event.module, event.op, event.kind, event.phase)
                    if key in found:
                        break
                    found.add(key)
                yield event

    def _look_closer(self, deadline: float) -> Iterator[Event]:
        """A run in which nothing was seen: the layers of its first step and of its last batch beside FP32.

        Low weights: do they move.
        """
        if (first := self._first_scene(deadline)) is not None:
            yield layer_report(subject_of(self._config, self._workload, first, deadline), 1, self._first_loss)[0]
        subject = subject_of(self._config, self._workload, self._last_scene(), deadline).taking(1)
        report, wrong = layer_report(subject, self._training.number, self._first_loss)
        yield report
        if wrong:
            self._suspicions.add("loss", self._training.number)
        elif stored_low(subject, subject.recipe) is not None:
            start = self._good.states[0].number if self._good.states else self._began_at
            self._suspicions.add("updates", min(start + 1, self._training.number))

    def _first_scene(self, deadline: float) -> Scene | None:
        """The run's start, built again; not where the last batch is of the first step anyway."""
        if self._training.number == 1:
            return None
        return find_scene(self._config, self._workload, None, 0, 1, 1, deadline)

    def _last_scene(self) -> Scene:
        """The weights as they are now, and the last batches of training."""
        batches = self._training.data.last_batches()
        return Scene(first_step=self._training.number, start=state_of(self._training.step), batches=batches)

    def _diagnosed(self, suspicion: Suspicion, deadline: float) -> Iterator[Diagnosis | Artifact]:
        scene = self._scene(suspicion, deadline)
        if scene is None:
            warnings.warn(f"no diagnosis: step {suspicion.step} could not be repeated in time", stacklevel=2)
            return
        subject = subject_of(self._config, self._workload, scene, deadline)
        if suspicion.cause == "evaluation":
            given = list(islice(self._workload.batches("eval", 0), NUM_EVAL_BATCHES))
            subject = subject.evaluating(given)
        elif suspicion.cause == "loss":
            subject = subject.taking(1)
        yield from diagnose_scene(self._config, self._workload, subject, suspicion.cause)

    def _scene(self, suspicion: Suspicion, deadline: float) -> Scene | None:
        if suspicion.cause in ("evaluation", "loss"):
            return self._last_scene()
        until = time.monotonic() + SHARE_FOR_RERUN * max(0.0, deadline - time.monotonic())
        count = 1 if suspicion.cause == "zero_gradients" else HORIZON
        for number, load in self._known_states(suspicion.step):
            state = load()
            if state is None and number:
                continue
            scene = find_scene(self._config, self._workload, state, number, suspicion.step, count, until)
            if scene is not None:
                return scene
        return None

    def _known_states(self, step: int) -> list[tuple[int, Load]]:
        """States before a step, the latest first: copies in memory, checkpoints, the start of the run."""
        known: list[tuple[int, Load]] = [(0, lambda: None)]
        known += [(good.number, lambda good=good: good.state) for good in self._good.states]  # type: ignore[misc]
        known += [(n, lambda path=path: load_first([path])[0]) for n, path in self._checkpoints]  # type: ignore[misc]
        if self._began_at:
            known.append((self._began_at, lambda: load_first(self._config.resume_from)[0]))
        return sorted((one for one in known if one[0] < step), key=lambda one: -one[0])[:3]


def _may_be_numeric(error: Exception) -> bool:
    """Whether it may come from types and ranges: torch's own errors, but not for want of memory."""
    if not isinstance(error, RuntimeError | ValueError | TypeError) or isinstance(error, AmpError):
        return False
    return type(error).__name__ != "OutOfMemoryError" and "allocate memory" not in str(error)
