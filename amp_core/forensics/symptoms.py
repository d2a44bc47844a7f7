"""Is anything wrong? The low-precision training beside its FP32 twin and the twin's own A/A spread.

What the twin shows too is the workload's and no symptom. Order of the questions: what stops the code, what is not
finite (the earliest first), then the silent ones: stored values that stand still, a loss that is wrong, gradients that
vanish or are wrong; last, skips that do not end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amp_core.forensics.diagnosis import Symptom, SymptomKind
from amp_core.forensics.execution import StepSeen, Trajectory

SKIPPED_SHARE = 0.3  # of all steps, before skips that settle count as a symptom
TAIL = 0.2  # share of the last losses that stand for the end of training
CLEARLY_WORSE = 0.15  # of the progress that FP32 made
MANY_TIMES = 2.0  # the twin's loss, where both are small
SPREADS = 4.0  # A/A spreads
SAME_STATE = 0.1  # relative difference of one loss from the same weights
SMALL_LOSS = 0.02  # of the first loss: differences are not looked at more closely than that
STUCK_SHARE = 0.5
VANISHED = 0.3  # share of a gradient's elements


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What symptoms are read from. ``losses_at`` are (low, FP32) losses from one and the same state, per state."""

    low: Trajectory
    reference: Trajectory
    controls: Sequence[Trajectory]
    first_step: int = 1  # the number of the first step in the run that is looked at
    scale_caused: frozenset[int] = frozenset()  # skipped steps that a lower scale would have saved
    skipping: Trajectory | None = None  # the twin without the updates that were skipped for the scale's sake
    losses_at: Sequence[tuple[float, float]] = ()
    flushed: dict[str, float] | None = None  # parameter: share of its FP32-nonzero gradient that is zero
    gradient_errors: dict[str, float] | None = None  # parameter: relative error of the accumulated gradient


def find_symptom(evidence: Evidence) -> Symptom | None:
    """The gravest symptom, or None: then nothing is wrong with this recipe on these batches."""
    if evidence.reference.error is not None or not _finite(evidence.reference.losses):
        return None  # the twin is not healthy: nothing can be said about the recipe
    questions: tuple[Callable[[Evidence], Symptom | None], ...] = (
        _error,
        _non_finite,
        _stuck,
        _same_state,
        _vanished,
        _gradient_error,
        _worse_in_the_end,
        _skips,
    )
    for question in questions:
        symptom = question(evidence)
        if symptom is not None:
            return symptom
    return None


def _finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) for value in values)


def _error(evidence: Evidence) -> Symptom | None:
    error = evidence.low.error
    if error is None:
        return None
    text = f"The code stops with {error.type}: {error.message[:160]}"
    return Symptom(kind="error", step=len(evidence.low.steps) + 1, sentence=text)


def _non_finite(evidence: Evidence) -> Symptom | None:
    reference = evidence.reference.steps
    for index, step in enumerate(evidence.low.steps):
        twin = reference[index] if index < len(reference) else None
        found = _unsound(step)
        if found is None or (twin is not None and _unsound(twin) == found) or index in evidence.scale_caused:
            continue
        words = {
            "non_finite_loss": "The loss is not finite",
            "non_finite_gradients": "Gradients are not finite",
            "non_finite_weights": "Weights or buffers stop being finite",
        }[found]
        return Symptom(
            kind=found,
            step=index + 1,
            sentence=f"{words} at step {index + evidence.first_step}, while FP32 stays finite.",
            names=list(step.bad_weights),
        )
    if not _finite(evidence.low.eval_losses) and _finite(evidence.reference.eval_losses):
        text = "The evaluation loss is not finite, while FP32's is."
        return Symptom(kind="non_finite_evaluation", step=len(evidence.low.steps), sentence=text)
    return None


def _unsound(step: StepSeen) -> SymptomKind | None:
    if not _finite(step.losses):
        return "non_finite_loss"
    if not step.finite_gradients:
        return "non_finite_gradients"
    if step.bad_weights:
        return "non_finite_weights"
    return None


def scale_settles(steps: Sequence[StepSeen]) -> bool:
    """Whether skips are a dynamic scale finding its place: first of all steps, each scale lower, and then none."""
    skipped = [index for index, step in enumerate(steps) if step.skipped]
    if not skipped:
        return True
    return len(skipped) <= max(2, SKIPPED_SHARE * len(steps)) and skipped[-1] < len(steps) - 1


def _skips(evidence: Evidence) -> Symptom | None:
    steps = evidence.low.steps
    skipped = sum(step.skipped for step in steps)
    if not steps or scale_settles(steps):
        return None
    return Symptom(
        kind="endless_skips",
        step=next(index for index, step in enumerate(steps) if step.skipped) + 1,
        sentence=f"{skipped} of {len(steps)} steps are skipped.",
        figures={"skipped": float(skipped)},
    )


def _stuck(evidence: Evidence) -> Symptom | None:
    low, reference = evidence.low, evidence.reference
    if low.initial is None or low.final is None or reference.initial is None or reference.final is None:
        return None
    parameters = set(low.steps[0].gradient_max) if low.steps else set()
    for name, start in low.initial.tensors.items():
        if start.element_size() > 2 or name not in reference.final.tensors or not start.numel():
            continue
        wide = reference.final.tensors[name] - reference.initial.tensors[name]
        moved = (low.final.tensors[name] - start).double()
        change, expected = float(moved.norm()), float(wide.double().norm())
        stands = float(((moved == 0) & (wide != 0)).double().sum()) / max(1.0, float((wide != 0).double().sum()))
        if not math.isfinite(change) or expected == 0:
            continue
        if name in parameters and stands > STUCK_SHARE and change < 0.5 * expected:
            text = f"Weights of {name} stand still ({stands:.0%} of those that FP32 moves)."
            figures = {"unmoved_share": stands}
            return Symptom(kind="stuck_weights", step=len(low.steps), sentence=text, names=[name], figures=figures)
        if name not in parameters and change < 0.8 * expected:
            text = f"The statistic {name} changes by {change:.4g} in all, in FP32 by {expected:.4g}."
            figures = {"change": change, "expected": expected}
            return Symptom(kind="stuck_statistics", step=len(low.steps), sentence=text, names=[name], figures=figures)
    return None


def _tail(trajectory: Trajectory) -> float:
    losses = [step.loss for step in trajectory.steps]
    count = max(1, round(TAIL * len(losses)))
    return sum(losses[-count:]) / count


def _same_state(evidence: Evidence) -> Symptom | None:
    first = abs(evidence.reference.losses[0]) if evidence.reference.losses else 0.0
    for value, twin in evidence.losses_at:
        if abs(value - twin) > SAME_STATE * max(abs(twin), SMALL_LOSS * first) and math.isfinite(value):
            text = f"From the same weights the loss is {value:.4g}, in FP32 {twin:.4g}."
            return Symptom(kind="quality", step=0, sentence=text, figures={"loss": value, "fp32": twin})
    return None


def _worse_in_the_end(evidence: Evidence) -> Symptom | None:
    """Worse than FP32 after the same updates; skipped steps are a matter of their own."""
    low, reference = evidence.low, evidence.skipping or evidence.reference
    if not low.steps or not reference.steps:
        return None
    start = reference.losses[0]
    pairs = [(_tail(low), _tail(reference), [_tail(c) for c in evidence.controls], _tail(evidence.reference))]
    if low.eval_loss is not None and reference.eval_loss is not None and evidence.reference.eval_loss is not None:
        controls = [c.eval_loss for c in evidence.controls if c.eval_loss is not None]
        pairs.append((low.eval_loss, reference.eval_loss, controls, evidence.reference.eval_loss))
    for value, twin, controls, plain in pairs:
        spread = max((abs(control - plain) for control in controls), default=0.0)
        if _is_worse(value - twin, abs(twin), abs(start - twin), spread):
            text = f"The loss ends at {value:.4g}, in FP32 at {twin:.4g}."
            return Symptom(kind="quality", step=len(low.steps), sentence=text, figures={"loss": value, "fp32": twin})
    return None


def _is_worse(harm: float, twin: float, progress: float, spread: float) -> bool:
    clearly = harm > CLEARLY_WORSE * progress
    many_times = harm > (MANY_TIMES - 1) * twin and harm > SMALL_LOSS * progress
    return (clearly or many_times) and harm > SPREADS * spread and harm > 1e-3 * twin


def _vanished(evidence: Evidence) -> Symptom | None:
    gone = {name: share for name, share in (evidence.flushed or {}).items() if share > VANISHED}
    if not gone:
        return None
    worst = max(gone, key=lambda name: gone[name])
    return Symptom(
        kind="zero_gradients",
        step=len(evidence.low.steps),
        sentence=f"{gone[worst]:.0%} of the gradient of {worst} is exactly zero that is not in FP32.",
        names=list(gone),
        figures=gone,
    )


def _gradient_error(evidence: Evidence) -> Symptom | None:
    wrong = {name: error for name, error in (evidence.gradient_errors or {}).items() if error > SAME_STATE}
    if not wrong:
        return None
    worst = max(wrong, key=lambda name: wrong[name])
    return Symptom(
        kind="gradient_error",
        step=1,
        sentence=f"The accumulated gradient of {worst} is off by {wrong[worst]:.0%} from the sum of its parts.",
        names=list(wrong),
        figures=wrong,
    )
