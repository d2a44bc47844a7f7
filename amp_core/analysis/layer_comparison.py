"""Layer by layer, asked for: steps under the recipe beside the same steps in FP32 or FP64, from one state."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from amp_core.analyses import LayersOptions, parse_options
from amp_core.analysis.plain import plain
from amp_core.analysis.start import find_start, reference_recipe, step_at, trial_recipe
from amp_core.config import RunConfig
from amp_core.environment import environment
from amp_core.errors import AnalysisError, Interrupted, RecipeError
from amp_core.events import Event, Finished, Progress, Report, Started
from amp_core.forensics.layers import Comparison, content_of, layers
from amp_core.forensics.scene import Scene, state_of, subject_of
from amp_core.forensics.subject import Subject
from amp_core.precision import precision_for
from amp_core.setup import build_step, device_named
from amp_core.workload import Workload, to_device

KIND = "layers"
WIDE = ("32-true", "tf32")


def compare_layers(config: RunConfig, workload: Workload) -> Iterator[Event]:
    """Compare the first step, and the last of the horizon: `Started`, `Progress`, `Report`s, `Finished`.

    Raises:
        RecipeError: for a recipe that lowers nothing.
        AnalysisError: for a model that does not run in FP64, where that is the reference.
    """
    options = parse_options(KIND, config.options)
    assert isinstance(options, LayersOptions)
    if config.recipe.precision in WIDE:
        raise RecipeError(
            f"precision={config.recipe.precision!r} lowers nothing, so its layers are FP32's: choose a recipe in bf16, "
            "fp16 or fp8"
        )
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    began = time.monotonic()
    yield _started(config, workload)
    try:
        yield Progress(done=0, total=2, message=f"Training {options.start} steps in FP32")
        subject = _subject(config, workload, options)
        for done, horizon in enumerate(sorted({1, options.horizon})):
            yield Progress(done=done, total=2, message=f"Comparing step {options.start + horizon}")
            found = _compared(subject, options, horizon)
            is_last = horizon == options.horizon
            content = content_of(found, options.start + horizon, found.same_loss(found.reference_loss))
            told = {"state": "done" if is_last else "running", "answer": _answer(found, content["step"], config)}
            seconds = {"horizon": horizon, "seconds": time.monotonic() - began}
            yield Report(kind=KIND, content=plain(content | told | seconds), final=is_last)
    except Interrupted:
        return
    train_s = time.monotonic() - began
    yield Finished(
        metrics={}, steps=config.steps, skipped_steps=0, samples=0, lost_samples=0, train_s=train_s, warmup_s=0.0
    )


def _started(config: RunConfig, workload: Workload) -> Started:
    began = time.monotonic()
    recipe = trial_recipe(config.recipe)
    precision = precision_for(recipe, device_named(config.device))
    step = build_step(workload, recipe, precision, config.seed, config.steps)
    with precision.applied(step.model):
        return Started(
            numerics=precision.numerics,
            environment=environment(precision, config.workload.path),
            num_parameters=sum(p.numel() for p in step.model.parameters()),
            setup_s=time.monotonic() - began,
        )


def _subject(config: RunConfig, workload: Workload, options: LayersOptions) -> Subject:
    """The steps after the start, on the CPU, where forensics compares."""
    start = find_start(config, workload, options.start, options.horizon)
    step = step_at(config, workload, start, reference_recipe(config.recipe))
    batches: list[Any] = [to_device(batch, torch.device("cpu")) for taken in start.steps for batch in taken]
    state = replace(state_of(step), scaler=None)
    scene = Scene(first_step=options.start + 1, start=state, batches=batches)
    return replace(subject_of(config, workload, scene, math.inf), deadline=None)


def _compared(subject: Subject, options: LayersOptions, horizon: int) -> Comparison:
    exactly = options.reference == "fp64"
    try:
        return layers(subject, exactly=exactly, horizon=horizon)
    except RuntimeError as error:
        if not exactly:
            raise
        raise AnalysisError(
            f"reference='fp64': the model does not run in FP64 ({error}): choose reference='fp32'"
        ) from error


def _answer(found: Comparison, step: int, config: RunConfig) -> str:
    reference = found.reference.upper()
    losses = f"loss {found.loss:.5g} beside {found.reference_loss:.5g}"
    if found.departs is None:
        return f"At step {step} every module of {config.recipe.name} is within rounding of {reference} ({losses})."
    return f"At step {step} the numbers of {config.recipe.name} part from {reference} at {found.departs} ({losses})."
