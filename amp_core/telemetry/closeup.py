"""Single steps watched more closely: forward order, bytes saved for backward, sampled numerics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from amp_core.events import Event
from amp_core.probe import Probe
from amp_core.seeding import rng_state
from amp_core.step import TrainStep
from amp_core.telemetry.exponent_sampling import ExponentSampler
from amp_core.telemetry.gradients import OwnedParameters, forward_order, owners
from amp_core.telemetry.memory import SavedBytes
from amp_core.telemetry.numerics import NumericsSampler
from amp_core.telemetry.recorder import Recorder

ORDER_STEP = 1
SAVED_BYTES_STEP = 2  # after the warm-up of allocators and caches


class CloseUp:
    """Runs backward of the steps it wants to watch; their weights and random streams are those of any other step."""

    def __init__(self, step: TrainStep, sampler: NumericsSampler, recorder: Recorder) -> None:
        self._step = step
        self._sampler = sampler
        self._recorder = recorder
        self._exponents = ExponentSampler(step.model)
        self._order: list[str] = []
        self._owned: list[OwnedParameters] = []

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"order": list(self._order), "sampler": self._sampler.state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._order = list(state["order"])
        self._owned = owners(self._step.model, self._order) if self._order else []
        self._sampler.load_state(state["sampler"])

    def due(self, number: int) -> bool:
        """Whether this step is watched."""
        return number in (ORDER_STEP, SAVED_BYTES_STEP) or self._sampler.due(number)

    def backward(self, number: int, batches: Sequence[Any]) -> tuple[Tensor, list[Event]]:
        """`TrainStep.backward`, and what was seen."""
        rng = rng_state(self._step.precision.device)
        with_exponents = self._sampler.keeps_exponents(number)
        with ExitStack() as stack:
            if with_exponents and not self._step.precision.recipe.compile:
                stack.enter_context(self._exponents.watching())
            loss = self._watched_backward(number, batches)
        if not self._sampler.due(number):
            return loss, []
        scaler = self._step.scaler
        scale = float(scaler.current_scale) if scaler is not None else 1.0
        probe = Probe(self._step, batches, rng, self._order)
        events = self._sampler.sample(number, self._owned, probe, scale)
        return loss, [*events, *self._exponents.events(number, self._owned, scale)] if with_exponents else events

    def _watched_backward(self, number: int, batches: Sequence[Any]) -> Tensor:
        model = self._step.model
        if self._step.precision.recipe.compile:  # what is watched from inside would not be what was compiled
            self._owned = self._owned or owners(model)
            return self._step.backward(batches)
        if number == ORDER_STEP:
            self._order, loss = forward_order(model, lambda: self._step.backward(batches))
            self._owned = owners(model, self._order)
            return loss
        if number == SAVED_BYTES_STEP:
            saved = SavedBytes(model, until_backward=len(batches) > 1)
            with saved.measured():
                loss = self._step.backward(batches)
            self._recorder.add("memory/saved_for_backward_bytes", number, float(saved.total))
            return loss
        return self._step.backward(batches)
