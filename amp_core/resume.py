"""What a checkpoint holds of a run's model and surroundings, and how it comes back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from amp_core.config import Recipe, RunConfig
from amp_core.errors import NotResumable
from amp_core.precision import Precision
from amp_core.real_steps import RealSteps
from amp_core.scaler import LossScaler


class Resumable(Protocol):
    """What a checkpoint captures: `amp_core.step.TrainStep`, or what a script prepared."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]: ...
    @property
    def scaler(self) -> LossScaler | None: ...
    @property
    def real_steps(self) -> RealSteps: ...
    @property
    def precision(self) -> Precision: ...


def identity(config: RunConfig) -> str:
    """What must be the same for a checkpoint to fit: everything that decides the numbers of a step."""
    same: dict[str, Any] = {
        "workload": [config.workload.name, config.workload.params],
        "recipe": recipe_identity(config.recipe),
        "seed": config.seed,
        "steps": config.steps,
        "init_perturbation": config.init_perturbation,
    }
    if config.ranks > 1:
        same["ranks"] = [config.ranks, config.distribution.strategy]
    if (fork := config.fork) is not None:
        same["fork"] = [fork.run, fork.name, fork.seed, fork.steps]
    return msgspec.json.encode(same, order="deterministic").decode()


def recipe_identity(recipe: Recipe) -> dict[str, Any]:
    """A recipe as an `identity` holds it, without later fields that have their defaults: older checkpoints fit."""
    fields: dict[str, Any] = msgspec.to_builtins(recipe)
    is_default = {
        "reduce_dtype": recipe.reduce_dtype is None,
        "fp32_ops": not recipe.fp32_ops,
        "fp8_compute": recipe.fp8_compute == "auto",
    }
    return {name: value for name, value in fields.items() if not is_default.get(name, False)}


def capture(config: RunConfig, step: Resumable) -> dict[str, Any]:
    """Model, optimizers, scaler, schedules, average and random generators as tensors and plain data."""
    step.real_steps.settle()
    ema = step.real_steps.ema
    return {
        "identity": identity(config),
        "torch": torch.__version__.split("+")[0],
        "num_threads": torch.get_num_threads(),
        "model": step.model.state_dict(),
        "other_buffers": _other_buffers(step.model),
        "optimizers": [optimizer.state_dict() for optimizer in step.optimizers],
        "scaler": step.scaler.state_dict() if step.scaler is not None else {},
        "schedules": [schedule.state_dict() for schedule in step.real_steps.schedules],
        "ema": ema.state_dict() if ema is not None else {},
        "rng": rng_states(step.precision.device),
    }


def restore(config: RunConfig, step: Resumable, state: dict[str, Any]) -> None:
    """Put a captured state into a freshly built step; the random generators follow with `set_rng_states`.

    Raises:
        NotResumable: if the checkpoint belongs to another run, or does not fit this model.
    """
    if state["identity"] != identity(config):
        raise NotResumable("the checkpoint was made by a run of another workload, recipe, seed or length")
    try:
        load_training(step, state)
        if step.scaler is not None and step.scaler.is_enabled():
            step.scaler.load_state_dict(state["scaler"])
        if step.real_steps.ema is not None:
            step.real_steps.ema.load_state_dict(state["ema"])
    except (KeyError, ValueError, RuntimeError) as error:
        raise NotResumable(f"the checkpoint does not fit this model or its optimizers: {error}") from error


def load_training(step: Resumable, state: dict[str, Any]) -> None:
    """Weights, buffers, optimizers and schedules, each in the type that the step stores it in.

    Raises `KeyError`, `ValueError` or `RuntimeError` for a state of another model.
    """
    step.model.load_state_dict(state["model"])
    buffers = dict(step.model.named_buffers())
    for name, value in state["other_buffers"].items():
        buffers[name].copy_(value)
    for optimizer, saved in zip(step.optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)
    for schedule, saved in zip(step.real_steps.schedules, state["schedules"], strict=True):
        schedule.load_state_dict(saved)


def rng_states(device: torch.device) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's global generators, and the device's."""
    name, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_rng_states(states: dict[str, Any], device: torch.device) -> None:
    """Return the generators to what `rng_states` gave."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None:
        torch.cuda.set_rng_state(states["cuda"], device)


def _other_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that a state dict leaves out."""
    saved = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in saved}
