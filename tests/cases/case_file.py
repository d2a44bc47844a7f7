"""A case file as a subject for forensics. Of the answer (EXPECT) only the precision is read: it is the question."""

from __future__ import annotations

import importlib.util
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from amp_core.config import Recipe, parse_recipe
from amp_core.forensics.execution import Trajectory, follow
from amp_core.forensics.subject import FP32_ARM, Arm, Subject

OPTIMIZERS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
EVAL_SEED = 999


def load(path: Path) -> types.ModuleType:
    """Import a case file under a name of its own."""
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recipe_of(case: types.ModuleType, policy: str) -> Recipe:
    """The recipe a case trains under: its precision, its scaler, and the autocast lists asked for."""
    if getattr(case, "NO_AUTOCAST", False):
        return parse_recipe("32-true")  # what is low is what the model stores low
    if case.EXPECT["precision"] == "bf16":
        return parse_recipe({"precision": "bf16-mixed", "autocast_policy": policy})
    options = dict(case.SCALER)
    scaler = {"kind": "none"}
    if options.pop("enabled", False):
        scaler = {"kind": "dynamic", **options}
    return parse_recipe({"precision": "16-mixed", "autocast_policy": policy, "scaler": scaler})


def optimizer_of(case: types.ModuleType) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    options = dict(case.OPTIM)
    kind = OPTIMIZERS[options.pop("name")]
    return lambda parameters: kind(parameters, **options)


def subject_of(case: types.ModuleType, policy: str) -> Subject:
    """The case as forensics takes it."""
    accumulate = getattr(case, "ACCUM", 1)
    num_eval = getattr(case, "N_EVAL", 0)
    return Subject(
        model=case.make_model,
        batches=case.make_batches(getattr(case, "STEPS", 20) * accumulate, 1),
        loss=case.loss_fn,
        optimizer=optimizer_of(case),
        recipe=recipe_of(case, policy),
        eval_batches=case.make_batches(num_eval, EVAL_SEED) if num_eval else (),
        accumulate=accumulate,
        reference_model=getattr(case, "make_model_fp32", None),
    )


def seen_by_case(case: types.ModuleType, subject: Subject, recipe: Recipe) -> types.SimpleNamespace:
    """Train under a recipe and give what was seen in the form that a case's own ``symptom`` reads."""
    return _namespace(follow(subject, Arm(recipe=recipe), inspect=_inspection(case)))


def fp32_seen_by_case(case: types.ModuleType, subject: Subject) -> types.SimpleNamespace:
    return _namespace(follow(subject, FP32_ARM, inspect=_inspection(case)))


def _inspection(case: types.ModuleType) -> Callable[[nn.Module, torch.optim.Optimizer], dict[str, Any]]:
    def inspect(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        found = dict(case.inspect(model)) if hasattr(case, "inspect") else {}
        return found | (dict(case.inspect_opt(optimizer)) if hasattr(case, "inspect_opt") else {})

    return inspect


def _namespace(seen: Trajectory) -> types.SimpleNamespace:
    error = seen.error
    plain = error is not None and error.type == "RuntimeError"
    last = seen.steps[-1] if seen.steps else None
    moved = {}
    if seen.initial is not None and seen.final is not None:
        start = seen.initial.tensors
        moved = {n: float((t.double() - start[n].double()).abs().max()) for n, t in seen.final.tensors.items()}
    message = None if error is None else error.message if plain else f"{error.type}: {error.message}"
    return types.SimpleNamespace(
        losses=seen.losses,
        scales=[step.scale for step in seen.steps],
        skipped=sum(step.skipped for step in seen.steps),
        error=message,
        first_bad=None,
        grad_max=last.gradient_max if last else {},
        grad_zero=last.gradient_zero if last else {},
        moved=moved,
        eval_loss=seen.eval_loss if seen.eval_loss is not None else math.nan if seen.error else None,
        extra=seen.extra,
        model=None,
    )
