"""Sampled numerics: per-module gradient statistics, and what becomes of gradients that turned into zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from amp_core.events import Event, Numerics, ZeroGradients
from amp_core.precision import Precision
from amp_core.probe import Probe
from amp_core.telemetry.exponent_sampling import has_all_kinds, is_kept
from amp_core.telemetry.gradients import (
    GradientCounts,
    OwnedParameters,
    count_gradients,
    dense,
    fp16_underflow_count,
    underflow_fraction,
)
from amp_core.telemetry.recorder import Recorder

ZERO_FRACTION = 0.99
PROBE_SCALE = 65536.0
REFERENCE_EVERY = 8  # native recipes compare with FP32 on one sample in so many, to keep the cost well below 1 %


class NumericsSampler:
    """Looks at the gradients of sampled steps: the first, every ``every`` steps, and the last."""

    def __init__(self, precision: Precision, every: int, last_step: int, recorder: Recorder) -> None:
        self._precision = precision
        self._every = max(1, every)
        self._last_step = last_step
        self._recorder = recorder
        self._num_samples = 0
        self._reported: set[str] = set()

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"num_samples": self._num_samples, "reported": sorted(self._reported)}

    def load_state(self, state: dict[str, Any]) -> None:
        self._num_samples, self._reported = state["num_samples"], set(state["reported"])

    def due(self, step: int) -> bool:
        """Whether this step is sampled."""
        return step == 1 or step % self._every == 0 or step == self._last_step

    def keeps_exponents(self, step: int) -> bool:
        """Whether this step is sampled, and its exponents are counted as well."""
        return self.due(step) and is_kept(step, self._every, self._last_step)

    def keeps_all_exponents(self, step: int) -> bool:
        """Whether those of activations and weights are counted beside those of gradients."""
        return self.due(step) and has_all_kinds(step, self._every, self._last_step)

    def sample(self, step: int, owned: Sequence[OwnedParameters], probe: Probe, loss_scale: float) -> list[Event]:
        """Statistics of the gradients in ``.grad``, before the weights change; waits for the device."""
        reference = self._reference(step, owned, probe)
        counts = count_gradients(owned, reference)
        events: list[Event] = [
            Numerics(step=step, loss_scale=loss_scale, modules=[count.statistics() for count in counts])
        ]
        if not self._precision.lowers:
            self._recorder.add("grad/fp16_underflow_fraction", step, fp16_underflow_fraction(owned))
        elif reference is not None:
            self._recorder.add("grad/underflow_fraction", step, underflow_fraction(counts))
        zeros = {count.module: count.zero_fraction for count in counts if count.zero_fraction >= ZERO_FRACTION}
        if zeros.keys() - self._reported:
            self._reported |= zeros.keys()
            events.append(self._zero_gradients(step, zeros, probe))
        return events

    def _reference(self, step: int, owned: Sequence[OwnedParameters], probe: Probe) -> Sequence[OwnedParameters] | None:
        if not self._precision.lowers:
            return owned
        due = self._num_samples % REFERENCE_EVERY == 0 or step == self._last_step
        self._num_samples += 1
        return probe.fp32() if due or self._precision.numerics == "emulated" else None

    def _zero_gradients(self, step: int, zeros: dict[str, float], probe: Probe) -> ZeroGradients:
        copied = probe.scaled(PROBE_SCALE)
        again: list[GradientCounts] = count_gradients(copied) if copied is not None else []
        return ZeroGradients(
            step=step,
            zero_fraction=zeros,
            probe_scale=PROBE_SCALE,
            probe={count.module: count.zero_fraction for count in again if count.module in zeros},
        )


def fp16_underflow_fraction(owned: Sequence[OwnedParameters]) -> float:
    """Share of the nonzero gradient elements that fp16 would turn into zero; NaN without gradients. Waits."""
    if all(p.grad is None for owner in owned for p in owner.parameters):
        return float("nan")
    num_lost, num_nonzero = fp16_lost(owned)
    return num_lost / num_nonzero if num_nonzero else 0.0


def fp16_lost(owned: Sequence[OwnedParameters]) -> tuple[int, int]:
    """How many gradient elements fp16 would turn into zero, and how many are nonzero. Waits for the device once."""
    gradients = [dense(p.grad) for owner in owned for p in owner.parameters if p.grad is not None]
    if not gradients:
        return 0, 0
    lost = torch.stack([fp16_underflow_count(gradient) for gradient in gradients]).sum()
    nonzero = torch.stack([(gradient != 0).sum() for gradient in gradients]).sum()
    num_lost, num_nonzero = torch.stack([lost, nonzero]).tolist()
    return num_lost, num_nonzero
