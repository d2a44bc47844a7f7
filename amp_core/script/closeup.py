"""Single steps of a script watched more closely: order of modules, what really ran, bytes kept, sampled numerics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn

from amp_core.config import RunConfig
from amp_core.events import Event, Numerics, Segment, ZeroGradients
from amp_core.precision import Precision
from amp_core.telemetry.closeup import ORDER_STEP, PROOF_STEP
from amp_core.telemetry.device import DeviceGauge
from amp_core.telemetry.effective import Proof
from amp_core.telemetry.exponent_sampling import ExponentSampler, has_all_kinds, is_kept
from amp_core.telemetry.gradients import GradientCounts, calls_noted, count_gradients, in_call_order, owners
from amp_core.telemetry.memory import SavedBytes, bytes_by_part
from amp_core.telemetry.numerics import PROBE_SCALE, ZERO_FRACTION, fp16_lost
from amp_core.telemetry.peaks import peak_of
from amp_core.telemetry.rates import with_rates
from amp_core.telemetry.recorder import Recorder


class Watched(Protocol):
    """What is looked at: the script's models as one, and what goes with them. ``kept``: modules held in FP32."""

    model: nn.Module
    precision: Precision
    optimizers: tuple[torch.optim.Optimizer, ...]
    kept: tuple[str, ...]


class ScriptCloseUp:
    """What `amp_core.telemetry.closeup.CloseUp` is for a workload; but a script's batch cannot be run again.

    So there is no reference in FP32, and zero gradients are told without a probe. One step may take several blocks
    (accumulation) and several optimizers, whose gradients are counted one after another. Between a backward pass and
    the next call of a module the script clips, steps and logs: that is not recorded.
    """

    def __init__(self, config: RunConfig, watched: Watched, recorder: Recorder) -> None:
        self._every, self._last_step = max(1, config.numerics_every), config.steps
        self._watched, self._recorder = watched, recorder
        self._compiles = config.recipe.compile
        self._gauge = DeviceGauge.of(watched.precision.device)
        self._exponents = ExponentSampler(watched.model)
        self._flops: dict[str, int] = {}
        self._order: list[str] = []
        self._reported: set[str] = set()
        self._begun = 0  # the step that is watched now, or was last
        self._forget()

    def _forget(self) -> None:
        self._step = ExitStack()  # of hooks, until the step ends
        self._proof: Proof | None = None
        self._saved: SavedBytes | None = None
        self._calls: dict[str, None] | None = None
        self._counts: dict[str, GradientCounts] = {}
        self._bytes: dict[str, int] = {}
        self._lost = self._nonzero = 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"order": list(self._order), "flops": dict(self._flops), "reported": sorted(self._reported)}

    def load_state(self, state: dict[str, Any]) -> None:
        self._order, self._flops = list(state["order"]), dict(state["flops"])
        self._reported = set(state["reported"])

    def is_due(self, number: int) -> bool:
        """Whether this step is watched."""
        return number in (ORDER_STEP, PROOF_STEP) or self._is_sampled(number)

    def _is_sampled(self, number: int) -> bool:
        return number == 1 or number % self._every == 0 or number == self._last_step

    @contextmanager
    def block(self, number: int) -> Iterator[None]:
        """Watch one block of a step, if the step is due; results do not change."""
        if not self.is_due(number):
            yield
            return
        if number != self._begun:
            self._begin(number)
        self.record(True)
        watching = self._proof.watching() if self._proof is not None else nullcontext()
        with watching, self._saved.measured() if self._saved is not None else nullcontext():
            yield

    def _begin(self, number: int) -> None:
        self.release()
        self._begun = number
        if number == PROOF_STEP:
            self._proof = Proof(self._watched, self._watched.kept)
            self._saved = None if self._compiles else SavedBytes(self._watched.model, until_backward=True)
        if self._compiles:
            return  # what is watched from inside would not be what was compiled
        if number == ORDER_STEP:
            self._calls = self._step.enter_context(calls_noted(self._watched.model))
        if number != PROOF_STEP and self._keeps_all_exponents(number):
            self._step.enter_context(self._exponents.watching())

    def record(self, on: bool) -> None:
        """Go on recording operations, or leave out what follows."""
        if self._proof is not None:
            self._proof.is_paused = not on

    def look_at_gradients(self, number: int, parameters: Sequence[nn.Parameter]) -> None:
        """Count the unscaled gradients of one optimizer, on sampled steps; waits for the device there."""
        if not self._is_sampled(number):
            return
        if self._calls is not None:
            self._order = in_call_order(self._watched.model, self._calls)
        mine = {id(p) for p in parameters}
        everyone = owners(self._watched.model, self._order or None)
        owned = [owner for owner in everyone if any(id(p) in mine for p in owner.parameters)]
        for part, num_bytes in bytes_by_part(self._watched.model, self._watched.optimizers).items():
            self._bytes[part] = max(num_bytes, self._bytes.get(part, 0))  # optimizers' gradients come and go
        lowers = self._watched.precision.lowers
        for count in count_gradients(owned, None if lowers else owned):
            self._counts[count.module] = count
        if not lowers:
            lost, nonzero = fp16_lost(owned)
            self._lost, self._nonzero = self._lost + lost, self._nonzero + nonzero
        if is_kept(number, self._every, self._last_step):
            self._exponents.count(owned, weights=self._keeps_all_exponents(number))

    def _keeps_all_exponents(self, number: int) -> bool:
        return self._is_sampled(number) and has_all_kinds(number, self._every, self._last_step)

    def events(self, number: int, scale: float) -> list[Event]:
        """What was seen of the step that has ended, at its loss scale; nothing for one that was not watched."""
        if number != self._begun:
            return []
        events: list[Event] = []
        if self._proof is not None:
            events.append(self._proven(number, self._proof))
        if self._counts:
            for part, num_bytes in self._bytes.items():
                self._recorder.add(f"memory/{part}_bytes", number, float(num_bytes))
            events += self._numerics(number, scale)
            if is_kept(number, self._every, self._last_step):
                events += self._exponents.taken(number, scale)
        self.release()
        return events

    def release(self) -> None:
        """Take away what still watches."""
        self._step.close()
        self._forget()

    def add_gauges(self, number: int) -> None:
        """The device's own figures, at a flush."""
        self._gauge.add_to(self._recorder, number)

    def with_rates(self, segment: Segment) -> Segment:
        """The segment with FLOP/s and MFU where they are known; emulated numbers have no speed."""
        precision = self._watched.precision
        if not self._flops or precision.numerics == "emulated":
            return segment
        return with_rates(segment, self._flops, peak_of(precision.device, self._flops))

    def _proven(self, number: int, proof: Proof) -> Event:
        event = proof.event(number)
        self._flops = event.flops
        if self._saved is not None:
            self._recorder.add("memory/saved_for_backward_bytes", number, float(self._saved.total))
            self._recorder.add("memory/saved_weight_copies_bytes", number, float(self._saved.weight_copies))
            self._recorder.add("perf/flops_per_step", number, float(sum(event.flops.values())))
        return event

    def _numerics(self, number: int, scale: float) -> list[Event]:
        counts = list(self._counts.values())
        events: list[Event] = [
            Numerics(step=number, loss_scale=scale, modules=[count.statistics() for count in counts])
        ]
        if not self._watched.precision.lowers:
            fraction = self._lost / self._nonzero if self._nonzero else 0.0
            self._recorder.add("grad/fp16_underflow_fraction", number, fraction)
        zeros = {count.module: count.zero_fraction for count in counts if count.zero_fraction >= ZERO_FRACTION}
        if zeros.keys() - self._reported:
            self._reported |= zeros.keys()
            events.append(ZeroGradients(step=number, zero_fraction=zeros, probe_scale=PROBE_SCALE, probe={}))
        return events
