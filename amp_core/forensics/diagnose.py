"""`diagnose`: run the training beside its FP32 twin; if it is not sound, find where, what, and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from amp_core.config import Recipe, Scaler, parse_recipe
from amp_core.forensics.blame import Blame, blame
from amp_core.forensics.cures import Cure, find_cure
from amp_core.forensics.diagnosis import Diagnosis, Symptom, family_of
from amp_core.forensics.gathering import References, gather
from amp_core.forensics.sentences import fix_in_words, what_happened
from amp_core.forensics.subject import Arm, Subject, low_dtype
from amp_core.forensics.symptoms import Evidence, find_symptom


def diagnose(
    model_factory: Callable[[], nn.Module],
    batches: Iterable[Any],
    loss_fn: Callable[[nn.Module, Any], Tensor],
    recipe: Recipe | str | dict[str, Any],
    *,
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    eval_batches: Iterable[Any] = (),
    accumulate: int = 1,
    reference_model: Callable[[], nn.Module] | None = None,
    seed: int = 0,
) -> Diagnosis | None:
    """What is wrong with training this model on these batches under the recipe; None if nothing is.

    ``model_factory`` gives the same initial weights each time. Each batch is used once, ``accumulate`` of them per
    optimizer step. With the recipe ``32-true`` it is asked what the model's own low-precision weights do.

    Raises:
        RecipeError: if a CPU cannot run the recipe.
    """
    subject = Subject(
        model=model_factory,
        batches=list(batches),
        loss=loss_fn,
        optimizer=optimizer or (lambda parameters: torch.optim.AdamW(parameters, lr=1e-3)),
        recipe=recipe if isinstance(recipe, Recipe) else parse_recipe(recipe),
        eval_batches=list(eval_batches),
        accumulate=accumulate,
        reference_model=reference_model,
        seed=seed,
    )
    return diagnose_subject(subject)


def diagnose_subject(subject: Subject, references: References | None = None) -> Diagnosis | None:
    """`diagnose` for a subject; references may be shared between recipes."""
    references = references or References(subject)
    arm = Arm(recipe=subject.recipe)
    evidence = gather(subject, arm, references)
    symptom = find_symptom(evidence)
    if symptom is None:
        return _refused_by_device(subject, references)
    return _diagnosis(subject, references, arm, evidence, symptom)


def _refused_by_device(subject: Subject, references: References) -> Diagnosis | None:
    """With the device's own lists the device's own kernels count too: what they refuse, emulation cannot see."""
    recipe = subject.recipe
    if recipe.precision != "16-mixed" or recipe.autocast_policy != "native" or recipe.fp16_compute != "auto":
        return None
    native = msgspec.structs.replace(recipe, fp16_compute="native")
    first = replace(subject, recipe=native, batches=subject.batches[: subject.accumulate], eval_batches=())
    arm = Arm(recipe=native)
    evidence = gather(first, arm, references)
    if evidence.low.error is None:
        return None
    symptom = find_symptom(evidence)
    return None if symptom is None else _diagnosis(first, references, arm, evidence, symptom)


def _diagnosis(subject: Subject, references: References, arm: Arm, evidence: Evidence, symptom: Symptom) -> Diagnosis:
    found: Blame = blame(subject, arm, evidence, symptom)
    cure: Cure | None = find_cure(subject, references, arm, symptom, found.faults, found.fitting_scale)
    fault = found.chosen(cure)
    dtype = str(low_dtype(subject)).removeprefix("torch.")
    kind = fault.kind
    shown = symptom.step + subject.first_step - 1 if symptom.step else 0
    return Diagnosis(
        symptom=msgspec.structs.replace(symptom, step=shown),
        kind=kind,
        family=family_of(kind, symptom.kind),
        module=fault.module,
        op=fault.op,
        phase="evaluation" if symptom.kind == "non_finite_evaluation" else fault.phase,
        step=shown,
        batch=(subject.first_step - 1) * subject.accumulate + found.first_batch + fault.batch,
        max_abs=fault.max_abs,
        scale=found.scale,
        caused_by=found.cause,
        sentence=what_happened(fault, shown, dtype, found.cause, found.scale),
        fix=fix_in_words(kind, cure.sentence if cure else None),
        recipe=submittable(cure) if cure else None,
        fp32_weights=cure is not None and cure.fp32_weights,
        verified=cure is not None and cure.verified,
        evidence={**fault.evidence, "feeders": fault.feeders, "fitting_scale": found.fitting_scale},
    )


def submittable(cure: Cure) -> dict[str, Any]:
    """The recipe as people write it: without its name and what is at its default."""
    given, plain = _as_object(cure.recipe), _as_object(Recipe(name="plain", precision="32-true"))
    kept = {key: value for key, value in given.items() if key == "precision" or (value != plain[key] and key != "name")}
    if kept.get("scaler"):
        usual = _as_object(Scaler())
        kept["scaler"] = {k: v for k, v in kept["scaler"].items() if k == "kind" or v != usual[k]}
    return kept


def _as_object(struct: msgspec.Struct) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(struct))
    return read
