"""Non-finite losses, gradients and weights: each onset becomes an event, and dead weights end the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.events import NonFinite
from amp_core.telemetry.recorder import GatheredStep, GatheredSteps

DEAD_STEPS = 50  # steps with non-finite weights after which a run ends: nothing brings them back


def spell(value: float) -> str:
    """``nan``, ``inf`` or ``-inf``."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


class NonFiniteWatch:
    """Follows the gathered steps. An event marks where something *becomes* non-finite, not each later step.

    The gradient named is the last one in definition order that is not finite: as a rule backward reached it first.
    Gradients of skipped steps are the scaler's ordinary work and no event.
    """

    def __init__(self, model: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        """``parameters``: those whose norms the steps hold, in that order."""
        self._model = model
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._names = [names.get(id(parameter), "parameter outside the model") for parameter in parameters]
        self._loss_finite = self._gradient_finite = True
        self.dead_since: int | None = None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"loss": self._loss_finite, "gradient": self._gradient_finite, "dead_since": self.dead_since}

    def load_state(self, state: dict[str, Any]) -> None:
        self._loss_finite, self._gradient_finite = state["loss"], state["gradient"]
        self.dead_since = state["dead_since"]

    def observe(self, steps: GatheredSteps) -> list[NonFinite]:
        """Events of newly gathered steps, in their order."""
        if steps.are_ordinary:
            self._loss_finite = self._gradient_finite = True
            return []
        events: list[NonFinite] = []
        suspect: int | None = None
        for step in steps:
            loss_finite = math.isfinite(step.loss)
            if not loss_finite and self._loss_finite:
                events.append(NonFinite(step=step.step, where="loss", name="train/loss", value=spell(step.loss)))
            self._loss_finite = loss_finite
            bad = None if step.skipped else self._bad_gradient(step)
            if bad is not None and self._gradient_finite:
                events.append(NonFinite(step=step.step, where="gradient", name=bad[0], value=spell(bad[1])))
            self._gradient_finite = bad is None
            if suspect is None and (bad is not None or not loss_finite):
                suspect = step.step
        if suspect is not None and self.dead_since is None:
            events.extend(self._check_weights(suspect))
        return events

    def _bad_gradient(self, step: GatheredStep) -> tuple[str, float] | None:
        for name, norm in zip(reversed(self._names), reversed(step.norms), strict=False):
            if not math.isfinite(norm):
                return name, norm
        return None

    def _check_weights(self, step: int) -> list[NonFinite]:
        weights = [(name, p.detach()) for name, p in self._model.named_parameters() if p.is_floating_point()]
        finite = torch.stack([torch.isfinite(weight).all() for _, weight in weights]).tolist() if weights else []
        for (name, weight), ok in zip(weights, finite, strict=True):
            if not ok:
                self.dead_since = step
                return [NonFinite(step=step, where="weight", name=name, value=_first_bad(weight))]
        return []


def _first_bad(weight: Tensor) -> str:
    return spell(float(weight[~torch.isfinite(weight)].flatten()[0]))
