"""From a subject to the evidence: the trainings beside each other, and the same weights under both numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from amp_core.forensics.execution import State, Trajectory, follow
from amp_core.forensics.replay import accumulation_errors, flushed_shares, loss_at, replay
from amp_core.forensics.subject import FP32_ARM, REFERENCE, Arm, Subject, stored_low
from amp_core.forensics.symptoms import Evidence

PERTURBATION = 1e-6
NUM_CONTROLS = 2
BATCHES_PER_STATE = 4
FAR_LOWER = 2.0**24


class References:
    """The FP32 twin and its A/A controls of a subject: they do not depend on the recipe, so they run once."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.twin = follow(subject, FP32_ARM)
        self.controls = [
            follow(subject, Arm(recipe=REFERENCE, wide=torch.float32, perturbation=PERTURBATION * (i + 1)))
            for i in range(NUM_CONTROLS)
        ]


def gather(subject: Subject, arm: Arm, references: References) -> Evidence:
    """Run the arm and everything its symptoms are read from."""
    low = follow(subject, arm)
    if low.error is not None:
        return Evidence(low=low, reference=references.twin, controls=references.controls, first_step=subject.first_step)
    states = [state for state in (low.initial, references.twin.final, low.final) if state is not None]
    scale_caused = _scale_caused(subject, arm, low)
    return Evidence(
        low=low,
        reference=references.twin,
        controls=references.controls,
        first_step=subject.first_step,
        scale_caused=scale_caused,
        skipping=follow(subject, replace(FP32_ARM, without_update=scale_caused)) if scale_caused else None,
        losses_at=losses_at(subject, arm, states),
        flushed=_flushed(subject, arm, low),
        gradient_errors=_accumulated(subject, arm, low),
    )


def _scale_caused(subject: Subject, arm: Arm, low: Trajectory) -> frozenset[int]:
    """Skipped steps whose batches give finite gradients at a far lower loss scale."""
    found = set()
    for index, state in low.unsound.items():
        step = low.steps[index]
        if step.skipped and not step.bad_weights and all(map(math.isfinite, step.losses)):
            seen = replay(subject, arm, state, subject.micro_batches(index), step.scale / FAR_LOWER)
            if seen is not None and seen.finite:
                found.add(index)
    return frozenset(found)


def losses_at(subject: Subject, arm: Arm, states: Sequence[State]) -> list[tuple[float, float]]:
    """Mean losses (arm, FP32) of the first batches from each state."""
    batches = subject.batches[:BATCHES_PER_STATE]
    pairs = []
    for state in states:
        value, twin = loss_at(subject, arm, state, batches), loss_at(subject, FP32_ARM, state, batches)
        if value is not None and twin is not None:
            pairs.append((value, twin))
    return pairs


def _flushed(subject: Subject, arm: Arm, low: Trajectory) -> dict[str, float]:
    """Vanished gradients at the last step, when the loss scale has found its place."""
    if low.before_last is None:
        return {}
    batches = subject.micro_batches(subject.num_steps - 1)
    narrow = replay(subject, arm, low.before_last, batches)
    wide = replay(subject, FP32_ARM, low.before_last, batches)
    if narrow is None or wide is None or not narrow.finite:
        return {}
    return flushed_shares(narrow, wide)


def _accumulated(subject: Subject, arm: Arm, low: Trajectory) -> dict[str, float]:
    if subject.accumulate < 2 or low.initial is None or stored_low(subject, arm.recipe) is None:
        return {}
    return accumulation_errors(subject, arm, low.initial)
