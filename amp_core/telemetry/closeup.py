"""Single steps watched more closely: forward order, what really ran, bytes kept, sampled numerics."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from amp_core.events import EffectivePrecision, Event, Segment
from amp_core.probe import Probe, RngState
from amp_core.seeding import rng_state
from amp_core.step import TrainStep
from amp_core.telemetry.device import DeviceGauge
from amp_core.telemetry.effective import Proof
from amp_core.telemetry.exponent_sampling import ExponentSampler
from amp_core.telemetry.gradients import OwnedParameters, forward_order, owners
from amp_core.telemetry.memory import SavedBytes, bytes_by_part
from amp_core.telemetry.numerics import NumericsSampler
from amp_core.telemetry.peaks import peak_of
from amp_core.telemetry.rates import with_rates
from amp_core.telemetry.recorder import Recorder

ORDER_STEP = 1
PROOF_STEP = 2  # after the warm-up of allocators and caches: operations and bytes saved for backward


class CloseUp:
    """Runs backward of the steps it wants to watch; their weights and random streams are those of any other step."""

    def __init__(self, step: TrainStep, sampler: NumericsSampler, recorder: Recorder) -> None:
        self._step = step
        self._sampler = sampler
        self._recorder = recorder
        self._exponents = ExponentSampler(step.model)
        self._gauge = DeviceGauge.of(step.precision.device)
        self._flops: dict[str, int] = {}
        self._order: list[str] = []
        self._owned: list[OwnedParameters] = []

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"order": list(self._order), "sampler": self._sampler.state(), "flops": dict(self._flops)}

    def load_state(self, state: dict[str, Any]) -> None:
        self._order = list(state["order"])
        self._owned = owners(self._step.model, self._order) if self._order else []
        self._sampler.load_state(state["sampler"])
        self._flops = dict(state.get("flops", {}))  # absent in checkpoints of before they were counted

    def due(self, number: int) -> bool:
        """Whether this step is watched."""
        return number in (ORDER_STEP, PROOF_STEP) or self._sampler.due(number)

    def add_gauges(self, number: int) -> None:
        """The device's own figures, at a flush."""
        self._gauge.add_to(self._recorder, number)

    def with_rates(self, segment: Segment) -> Segment:
        """The segment with FLOP/s and MFU where they are known; emulated numbers have no speed."""
        precision = self._step.precision
        if not self._flops or precision.numerics == "emulated":
            return segment
        return with_rates(segment, self._flops, peak_of(precision.device, self._flops))

    def backward(self, number: int, batches: Sequence[Any]) -> tuple[Tensor, list[Event]]:
        """`TrainStep.backward`, and what was seen."""
        rng = rng_state(self._step.precision.device)
        events: list[Event] = []
        if number == PROOF_STEP:
            loss, event = self._proven_backward(number, batches)
            events.append(event)
        else:
            loss = self._watched_backward(number, batches)
        if self._sampler.due(number):
            events += self._sampled(number, batches, rng)
        return loss, events

    def _watched_backward(self, number: int, batches: Sequence[Any]) -> Tensor:
        model = self._step.model
        if self._step.precision.recipe.compile:  # what is watched from inside would not be what was compiled
            self._owned = self._owned or owners(model)
            return self._step.backward(batches)
        with self._exponents.watching() if self._sampler.keeps_all_exponents(number) else nullcontext():
            if number != ORDER_STEP:
                return self._step.backward(batches)
            self._order, loss = forward_order(model, lambda: self._step.backward(batches))
            self._owned = owners(model, self._order)
            return loss

    def _proven_backward(self, number: int, batches: Sequence[Any]) -> tuple[Tensor, EffectivePrecision]:
        """Backward with every operation and every saved storage on the record; no activations are counted here."""
        compiled = self._step.precision.recipe.compile
        saved = SavedBytes(self._step.model, until_backward=len(batches) > 1)
        proof = Proof(self._step)
        with proof.watching(), nullcontext() if compiled else saved.measured():
            loss = self._step.backward(batches)
        event = proof.event(number)
        self._flops = event.flops
        if not compiled:
            self._recorder.add("memory/saved_for_backward_bytes", number, float(saved.total))
            self._recorder.add("memory/saved_weight_copies_bytes", number, float(saved.weight_copies))
            self._recorder.add("perf/flops_per_step", number, float(sum(event.flops.values())))
        return loss, event

    def _sampled(self, number: int, batches: Sequence[Any], rng: RngState) -> list[Event]:
        for part, num_bytes in bytes_by_part(self._step.model, self._step.optimizers).items():
            self._recorder.add(f"memory/{part}_bytes", number, float(num_bytes))
        scaler = self._step.scaler
        scale = float(scaler.current_scale) if scaler is not None else 1.0
        probe = Probe(self._step, batches, rng, self._order)
        events = self._sampler.sample(number, self._owned, probe, scale)
        if self._sampler.keeps_exponents(number):
            weights = self._sampler.keeps_all_exponents(number)
            events += self._exponents.events(number, self._owned, scale, weights=weights)
        return events
