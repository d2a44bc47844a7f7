"""Where an analysis begins: a state of the FP32 training and the batches after it, to return to for every trial."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
import torch
from torch import Tensor

from amp_core.config import Recipe, RunConfig
from amp_core.forking import begin, schedule_steps
from amp_core.precision import precision_for
from amp_core.resume import capture, rng_states, set_rng_states
from amp_core.seeding import perturb_weights
from amp_core.setup import build_step, device_named
from amp_core.step import TrainStep
from amp_core.torch_private.tensors import tree_map
from amp_core.training_data import TrainingData, batch_hash
from amp_core.workload import Workload

By: TypeAlias = Literal["module", "op"]  # what is kept in FP32


@dataclass(frozen=True, kw_only=True)
class Start:
    """The state after step ``number``, and what the next steps take: one tuple of batches each."""

    number: int
    state: dict[str, Any]
    steps: list[tuple[Any, ...]]
    weights: dict[str, Tensor]

    @property
    def fingerprint(self) -> str:
        """SHA-256 over names and bytes of the weights and buffers, in hex."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.weights.items()):
            digest.update(name.encode() + batch_hash(tensor).encode())
        return digest.hexdigest()

    @property
    def batches(self) -> list[str]:
        """The hash of every batch, in order."""
        return [batch_hash(batch) for taken in self.steps for batch in taken]


def reference_recipe(recipe: Recipe) -> Recipe:
    """FP32 with what goes with a step as the recipe has it."""
    return Recipe(
        name="32-true",
        precision="32-true",
        accumulate=recipe.accumulate,
        clip_norm=recipe.clip_norm,
        clip_value=recipe.clip_value,
        gradient_checkpointing=recipe.gradient_checkpointing,
    )


def keeping(recipe: Recipe, kept: tuple[str, ...], by: By) -> Recipe:
    """The recipe with more in FP32: modules, or operations."""
    if by == "op":
        return msgspec.structs.replace(recipe, fp32_ops=(*recipe.fp32_ops, *kept), compile=False)
    return msgspec.structs.replace(recipe, fp32_modules=(*recipe.fp32_modules, *kept))


def trial_recipe(recipe: Recipe, kept: tuple[str, ...] = (), by: By = "module") -> Recipe:
    """`keeping`, without what changes no numbers and costs time for every trial."""
    return keeping(msgspec.structs.replace(recipe, compile=False, ema_decay=None), kept, by)


def find_start(config: RunConfig, workload: Workload, number: int, horizon: int) -> Start:
    """Train ``number`` steps in FP32 and take the batches of the next ``horizon``.

    They begin at the weights of the seed, or at the checkpoint that the configuration forks from. Raises `ForkError`.
    """
    recipe = reference_recipe(config.recipe)
    device = device_named(config.device)
    step = build_step(workload, recipe, precision_for(recipe, device), config.seed, schedule_steps(config))
    data = TrainingData(workload, config.seed)
    begin(config, step, data)
    with step.precision.applied(step.model):
        for _ in range(number):
            step.backward(step.take(data))
            step.update()
            step.clear()
    state = copy.deepcopy(capture(config, step))
    weights = {name: _copied(tensor) for name, tensor in _tensors(step).items()}
    return Start(number=number, state=state, steps=[step.take(data) for _ in range(horizon)], weights=weights)


def step_at(
    config: RunConfig, workload: Workload, start: Start, recipe: Recipe, perturbation: float = 0.0, draw: int = 0
) -> TrainStep:
    """A training step under a recipe with the start's weights and optimizer state; generators are set by `rewind`.

    ``perturbation`` is the relative size of a change of the weights, the ``draw``-th of its kind (the A/A control).
    """
    precision = precision_for(recipe, device_named(config.device))
    step = build_step(workload, recipe, precision, config.seed, schedule_steps(config))
    step.model.load_state_dict(start.state["model"])
    buffers = dict(step.model.named_buffers())
    for name, value in start.state["other_buffers"].items():
        buffers[name].copy_(value)
    for optimizer, saved in zip(step.optimizers, start.state["optimizers"], strict=True):
        optimizer.load_state_dict(copy.deepcopy(saved))
    for schedule, saved in zip(step.real_steps.schedules, start.state["schedules"], strict=True):
        schedule.load_state_dict(copy.deepcopy(saved))
    if perturbation:
        perturb_weights(step.model, perturbation, config.seed + 7919 * draw)
    rewind(start, step)
    return step


def rewind(start: Start, step: TrainStep) -> None:
    """Return the random generators to those of the start."""
    set_rng_states(start.state["rng"], step.precision.device)


@dataclass(frozen=True, slots=True)
class Moment:
    """Random generators and buffers before a step, for another try of it."""

    rng: dict[str, Any]
    buffers: dict[str, Tensor]

    @classmethod
    def of(cls, step: TrainStep) -> Moment:
        return cls(rng_states(step.precision.device), {name: _copied(b) for name, b in step.model.named_buffers()})

    @torch.no_grad()
    def restore(self, step: TrainStep) -> None:
        set_rng_states(self.rng, step.precision.device)
        for name, buffer in step.model.named_buffers():
            buffer.copy_(self.buffers[name])


def _tensors(step: TrainStep) -> dict[str, Tensor]:
    return {**dict(step.model.named_parameters()), **dict(step.model.named_buffers())}


def _copied(value: Tensor) -> Tensor:
    copied: Tensor = tree_map(lambda tensor: tensor.detach().clone(), value)
    return copied
