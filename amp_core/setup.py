"""From a run's configuration to a model ready to train: device, threads, seeds, optimizer, scaler."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from amp_core.config import Recipe
from amp_core.ema import Ema
from amp_core.errors import RecipeError, WorkloadError
from amp_core.gradient_checkpointing import checkpoint_modules
from amp_core.optimizers import checked_optimizers, checked_schedules
from amp_core.precision import Precision
from amp_core.real_steps import RealSteps
from amp_core.scaler import LossScaler
from amp_core.seeding import perturb_weights, seed_everything, stream_seed
from amp_core.step import TrainStep
from amp_core.workload import Workload


def device_named(name: str) -> torch.device:
    """The torch device. Raises `RecipeError` for a name torch does not know."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RecipeError(f"device={name!r} is unknown: choose cpu or cuda") from error
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return device


def initial_model(workload: Workload, seed: int, init_perturbation: float, device: torch.device) -> nn.Module:
    """The workload's model with the weights of this seed, on the device, in training mode.

    Raises:
        WorkloadError: if ``model()`` gives no module with trainable FP32 weights.
    """
    seed_everything(seed)
    model = workload.model()
    if not isinstance(model, nn.Module):
        raise WorkloadError(f"model() of workload {workload.name!r} gave {type(model).__name__}: return an nn.Module")
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trainable:
        raise WorkloadError(f"model() of workload {workload.name!r} has no trainable parameter: nothing to train")
    for name, parameter in trainable.items():
        if parameter.dtype in (torch.float16, torch.bfloat16):
            raise WorkloadError(
                f"parameter {name!r} of workload {workload.name!r} is {parameter.dtype}: mixed precision keeps its "
                "weights in FP32; return the model in float32, and the recipe lowers what it should"
            )
    if init_perturbation:
        perturb_weights(model, init_perturbation, seed)
    return model.to(device).train()


def build_step(
    workload: Workload,
    recipe: Recipe,
    precision: Precision,
    seed: int,
    steps: int,
    init_perturbation: float = 0.0,
    *,
    kind: type[TrainStep] = TrainStep,
    before_optimizers: Callable[[nn.Module], None] | None = None,
) -> TrainStep:
    """A training step with fresh model, optimizers and scaler; torch's generators are left at the dropout stream.

    ``steps`` is the run's length, for schedules that need it. ``before_optimizers`` may replace the model's parameters.
    """
    model = initial_model(workload, seed, init_perturbation, precision.device)
    precision.prepare(model)
    checkpoint_modules(model, recipe.gradient_checkpointing)
    if before_optimizers is not None:
        before_optimizers(model)
    optimizers = checked_optimizers(workload, model)
    schedules = checked_schedules(workload, optimizers, steps)
    ema = Ema(model, recipe.ema_decay) if recipe.ema_decay is not None else None
    scaler = (
        LossScaler.of(recipe.scaler, precision.device) if recipe.scaler and recipe.precision == "16-mixed" else None
    )
    if recipe.compile:
        model.compile()
    seed_everything(stream_seed(seed, "dropout"))
    return kind(workload, model, optimizers, precision, scaler, RealSteps(schedules, ema))
