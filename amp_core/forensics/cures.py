"""Recipes that might mend a fault, tried one after another on the whole training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch

from amp_core.config import TRUE_LOW, Recipe, Scaler
from amp_core.forensics.diagnosis import Symptom
from amp_core.forensics.gathering import References, gather
from amp_core.forensics.isolation import kept
from amp_core.forensics.locate import Fault
from amp_core.forensics.subject import Arm, Subject, stored_low
from amp_core.forensics.symptoms import find_symptom

MAX_TRIALS = 8
SCALE_LIMITS = (2.0**-126, 2.0**126)  # of FP32's normal numbers, which a scaler's state is


@dataclass(frozen=True, kw_only=True)
class Cure:
    """A recipe and what it does in words. ``fp32_weights``: the model has to hand over its weights in FP32."""

    recipe: Recipe
    sentence: str
    fp32_weights: bool = False
    verified: bool = False


def find_cure(
    subject: Subject, references: References, arm: Arm, symptom: Symptom, faults: list[Fault], scale: float | None
) -> Cure | None:
    """The first candidate under which the symptom is gone; else the first candidate, unverified.

    ``scale`` is a loss scale that fits, where the fault depends on it.
    """
    first: Cure | None = None
    for number, cure in enumerate(candidates(subject, arm, symptom, faults, scale)):
        if number == MAX_TRIALS or (number and subject.late):
            break
        first = first or cure
        if subject.late:
            break
        if cures(subject, references, cure):
            return replace(_minimal(subject, references, arm, cure), verified=True)
    return first


def _minimal(subject: Subject, references: References, arm: Arm, cure: Cure) -> Cure:
    """The cure without modules that it does not need: none of those left can be dropped."""
    needed = [name for name in cure.recipe.fp32_modules if name not in arm.recipe.fp32_modules]
    if len(needed) < 2:
        return cure
    for name in list(needed):
        if subject.late:
            break
        fewer = _keeping(arm, [other for other in needed if other != name])
        if len(needed) > 1 and cures(subject, references, fewer):
            needed.remove(name)
            cure = fewer
    return cure


def _keeping(arm: Arm, modules: Sequence[str]) -> Cure:
    return Cure(recipe=kept(arm, modules).recipe, sentence=f"keep {', '.join(modules)} in FP32 (fp32_modules)")


def cures(subject: Subject, references: References, cure: Cure) -> bool:
    """Whether the training under the cure shows no symptom at all."""
    return find_symptom(gather(as_trial(subject, cure), Arm(recipe=cure.recipe), references)) is None


def as_trial(subject: Subject, cure: Cure) -> Subject:
    """The subject as it is under the cure."""
    if not cure.fp32_weights:
        return replace(subject, recipe=cure.recipe)
    build = subject.reference_model or subject.model
    return replace(subject, model=lambda: build().float(), recipe=cure.recipe)


def candidates(
    subject: Subject, arm: Arm, symptom: Symptom, faults: list[Fault], scale: float | None
) -> Iterator[Cure]:
    """Every cure worth a trial, the likeliest first; each is a recipe that can be submitted."""
    if symptom.kind in ("zero_gradients", "endless_skips", "non_finite_gradients") and scale is not None:
        yield from _scaling(arm.recipe, scale)
    if stored_low(subject, arm.recipe) is not None:
        yield from _fp32_weights(subject, arm.recipe)
    if arm.recipe.precision in ("32-true", *TRUE_LOW):
        return
    yield from _modules(arm, symptom, faults)
    if arm.recipe.precision == "16-mixed" and any(f.kind in ("overflow", "underflow") for f in faults):
        bf16 = Recipe(name="bf16-mixed", precision="bf16-mixed", autocast_policy=_policy(arm.recipe))
        yield Cure(recipe=bf16, sentence="train in bf16-mixed, which has FP32's exponent range")


def _policy(recipe: Recipe) -> Any:
    return recipe.autocast_policy


def _scaling(recipe: Recipe, scale: float) -> Iterator[Cure]:
    if recipe.precision != "16-mixed" or recipe.scaler is None:
        return
    if recipe.scaler.kind != "dynamic":
        chosen = Scaler()
        yield Cure(
            recipe=msgspec.structs.replace(recipe, scaler=chosen, name="16-mixed"),
            sentence="use dynamic loss scaling (GradScaler, init_scale 65536)",
        )
        return
    chosen = starting_at(recipe.scaler, scale)
    bounds = [name for name in ("min_scale", "max_scale") if getattr(chosen, name) != getattr(recipe.scaler, name)]
    moved = "".join(f", with {name} {getattr(chosen, name):g}" for name in bounds)
    yield Cure(
        recipe=msgspec.structs.replace(recipe, scaler=chosen),
        sentence=f"start the loss scale at {chosen.init_scale:g}{moved}",
    )


def starting_at(scaler: Scaler, scale: float) -> Scaler:
    """The same rules from another positive scale, within what a scaler can hold; a bound that excludes it gives way."""
    scale = min(max(scale, SCALE_LIMITS[0]), SCALE_LIMITS[1])
    return msgspec.structs.replace(
        scaler,
        init_scale=scale,
        min_scale=min(scaler.min_scale, scale),
        max_scale=None if scaler.max_scale is None else max(scaler.max_scale, scale),
    )


def _fp32_weights(subject: Subject, recipe: Recipe) -> Iterator[Cure]:
    """Weights and statistics in FP32, lowered by autocast only: what mixed precision is."""
    by_recipe = recipe.precision in TRUE_LOW
    if recipe.precision == "32-true" or by_recipe:
        half = stored_low(subject, recipe) is torch.float16
        scaler = Scaler() if half else None
        recipe = Recipe(name="mixed", precision="16-mixed" if half else "bf16-mixed", scaler=scaler)
    yield Cure(
        recipe=recipe,
        fp32_weights=not by_recipe,
        sentence=f"keep weights and buffers in FP32 and let autocast lower the arithmetic ({recipe.precision})",
    )


def _modules(arm: Arm, symptom: Symptom, faults: list[Fault]) -> Iterator[Cure]:
    """The blamed module, then what feeds it, its parents, and the blamed modules together."""
    sets: dict[tuple[str, ...], None] = {}
    for fault in faults[:3]:
        if fault.module:
            sets[(fault.module,)] = None
        elif fault.feeders:
            sets[(fault.feeders[0],)] = None
            sets[tuple(fault.feeders[:3])] = None
    for fault in faults[:2]:
        parent = (fault.module or "").rpartition(".")[0]
        if parent:
            sets[(parent,)] = None
        if fault.module and fault.feeders:
            sets[(fault.module, fault.feeders[0])] = None
    owners = tuple(dict.fromkeys(name.rpartition(".")[0] for name in symptom.names if "." in name))
    if owners:
        sets[owners] = None
    together = tuple(dict.fromkeys(fault.module for fault in faults if fault.module))
    if len(together) > 1:
        sets[together[:8]] = None
    for modules in sets:
        yield _keeping(arm, modules)
