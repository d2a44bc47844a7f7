"""From a run's configuration to a model ready to train: device, threads, seeds, optimizer, scaler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from amp_core.config import Recipe
from amp_core.errors import RecipeError, WorkloadError
from amp_core.precision import Precision
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
    workload: Workload, recipe: Recipe, precision: Precision, seed: int, init_perturbation: float = 0.0
) -> TrainStep:
    """A training step with fresh model, optimizer and scaler; torch's generators are left at the dropout stream."""
    model = initial_model(workload, seed, init_perturbation, precision.device)
    optimizer = workload.optimizer([p for p in model.parameters() if p.requires_grad])
    if not isinstance(optimizer, torch.optim.Optimizer):
        given = type(optimizer).__name__
        raise WorkloadError(f"optimizer() of workload {workload.name!r} gave {given}: return a torch.optim.Optimizer")
    scaler = (
        LossScaler.of(recipe.scaler, precision.device) if recipe.scaler and recipe.precision == "16-mixed" else None
    )
    seed_everything(stream_seed(seed, "dropout"))
    return TrainStep(workload, model, optimizer, precision, scaler)


def training_batches(workload: Workload, seed: int) -> Iterator[Any]:
    """Training batches without end, epoch after epoch. Raises `WorkloadError` for an empty epoch."""
    epoch = 0
    while True:
        empty = True
        for batch in workload.batches("train", stream_seed(seed, "data", epoch)):
            empty = False
            yield batch
        if empty:
            raise WorkloadError(
                f"batches('train', seed) of workload {workload.name!r} yields nothing in epoch {epoch}: "
                "yield at least one batch"
            )
        epoch += 1
