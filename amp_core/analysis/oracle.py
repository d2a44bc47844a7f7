"""Whether a set of FP32 modules is enough: a replay beside FP32, judged by limits fixed before the search begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from amp_core.analyses import SensitivityOptions
from amp_core.analysis.replays import Deviation, Replayed, deviations, replay
from amp_core.analysis.start import By, Start, reference_recipe, trial_recipe
from amp_core.config import RunConfig
from amp_core.workload import Workload

CONTROLS = 3  # FP32 replays with perturbed weights
PERTURBATION = 1e-6
BAND = 3.0  # a deviation within three times the controls' largest is noise
ERROR_RATE = 0.05  # assumed of an oracle that does not repeat itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What passes, fixed from FP32 replays: the plain one repeated, and some with perturbed weights.

    ``loss`` and ``update`` are limits, each module's own for the latter; ``loss_noise`` and ``update_noise`` are the
    largest among the controls. ``repeatable``: the plain replay gave bitwise the same again.
    """

    loss: float
    update: dict[str, float]
    loss_noise: float
    update_noise: dict[str, float]
    repeatable: bool

    @property
    def error_rate(self) -> float:
        return 0.0 if self.repeatable else ERROR_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The answer for one set, and why not in words where it fails."""

    passed: bool
    loss: float
    update: float
    module: str
    reason: str


@dataclass(slots=True)
class Oracle:
    """Judges sets of modules, or of operations, by replays from one start."""

    config: RunConfig
    workload: Workload
    start: Start
    reference: Replayed
    limits: Limits
    by: By = "module"
    judged: dict[frozenset[str], Judgement] = field(default_factory=dict)

    def judge(self, kept: frozenset[str]) -> Judgement:
        """Replay with the set in FP32, and judge. The newest judgement of a set is kept."""
        recipe = trial_recipe(self.config.recipe, tuple(sorted(kept)), self.by)
        seen = replay(self.config, self.workload, self.start, recipe)
        found = _judge(deviations(seen, self.reference), self.limits)
        self.judged[kept] = found
        return found


def fix_limits(
    config: RunConfig, workload: Workload, start: Start, reference: Replayed, options: SensitivityOptions
) -> Limits:
    """Measure the noise of FP32 against itself; from it and the tolerances come the limits."""
    recipe = reference_recipe(config.recipe)
    again = deviations(replay(config, workload, start, recipe), reference)
    loss_noise, update_noise = again.loss, dict(again.update)
    for draw in range(CONTROLS):
        control = deviations(replay(config, workload, start, recipe, PERTURBATION, draw), reference)
        loss_noise = max(loss_noise, control.loss)
        for module, error in control.update.items():
            update_noise[module] = max(update_noise.get(module, 0.0), error)
    return Limits(
        loss=max(options.loss_tolerance, BAND * loss_noise),
        update={module: max(options.update_tolerance, BAND * noise) for module, noise in update_noise.items()},
        loss_noise=loss_noise,
        update_noise=update_noise,
        repeatable=again.loss == 0.0 and not any(again.update.values()),
    )


def _judge(seen: Deviation, limits: Limits) -> Judgement:
    """Compare with the limits; the reason names the quantity that is farthest beyond its own."""
    excess = {module: error / limits.update.get(module, math.inf) for module, error in seen.update.items()}
    module = max(excess, key=excess.__getitem__, default="")
    update = seen.update.get(module, 0.0)
    reason = seen.refused
    if not reason and excess.get(module, 0.0) > 1.0:
        reason = (
            f"the update of {module or 'the model'} is off by {update:.2g} of its size, "
            f"above {limits.update[module]:.2g}"
        )
    elif not reason and not seen.loss <= limits.loss:
        reason = f"the loss is off by {seen.loss:.2g} of its size, above {limits.loss:.2g}"
    return Judgement(passed=not reason, loss=seen.loss, update=update, module=module, reason=reason)
