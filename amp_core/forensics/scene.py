"""The scene of a fault: the state before it and the batches around it, found by training again from a good state."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from amp_core.config import RunConfig
from amp_core.errors import ForkError, NotResumable
from amp_core.forensics.execution import State, tensors_of
from amp_core.forensics.subject import Subject
from amp_core.forking import begin, built
from amp_core.optimizers import checked_optimizers
from amp_core.precision import precision_for
from amp_core.resume import restore, set_rng_states
from amp_core.seeding import seed_everything
from amp_core.setup import device_named
from amp_core.step import TrainStep
from amp_core.telemetry.gradients import gradient_norms
from amp_core.torch_private.tensors import tree_map
from amp_core.training_data import TrainingData
from amp_core.workload import Workload, to_device

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """``start`` is the state before optimizer step ``first_step``; ``batches`` are those of that step and after it."""

    first_step: int
    start: State
    batches: list[Any]


class OptimizerGroup:
    """Several optimizers that step together, as one: what forensics trains with."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizers": [optimizer.state_dict() for optimizer in self.optimizers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


class _Rerun:
    """The run's own training once more, as far as its fault."""

    def __init__(self, config: RunConfig, workload: Workload, checkpoint: dict[str, Any] | None) -> None:
        """Raises `NotResumable` if the checkpoint does not fit."""
        precision = precision_for(config.recipe, device_named(config.device))
        self.step = built(config, workload, precision)
        self.data = TrainingData(workload, config.seed)
        if checkpoint is None:
            begin(config, self.step, self.data)
        else:
            restore(config, self.step, checkpoint)
            self.data.forward_to(checkpoint["data"])
            set_rng_states(checkpoint["rng"], precision.device)

    def train_one(self) -> bool:
        """One step; whether loss and weights are finite after it."""
        loss = self.step.backward(self.step.take(self.data))
        self.step.update(gradient_norms(self.step.parameters))
        self.step.clear()
        checks = [loss, *(p.detach() for p in self.step.model.parameters() if p.is_floating_point())]
        return bool(torch.stack([torch.isfinite(tensor).all() for tensor in checks]).all())


def find_scene(
    config: RunConfig,
    workload: Workload,
    checkpoint: dict[str, Any] | None,
    number: int,
    step: int,
    num_steps: int,
    deadline: float,
) -> Scene | None:
    """The scene of the fault at ``step``, or at the first step before it after which something is not finite.

    ``checkpoint`` was made after step ``number`` (0 and None: the run's start). None if the deadline passes first, or
    if the data cannot be drawn again.
    """
    try:
        rerun = _Rerun(config, workload, checkpoint)
    except (NotResumable, ForkError):
        return None
    with rerun.step.precision.applied(rerun.step.model):
        for current in range(number + 1, step + 1):
            if time.monotonic() > deadline:
                return None
            before, place = state_of(rerun.step), rerun.data.position()
            if current == step or not rerun.train_one():
                count = min(num_steps, config.steps - current + 1) * config.recipe.accumulate
                return Scene(first_step=current, start=before, batches=_drawn(workload, config, place, count))
    return None


def _drawn(workload: Workload, config: RunConfig, place: dict[str, Any], count: int) -> list[Any]:
    data = TrainingData(workload, config.seed)
    if place["epoch"] >= 0:
        data.forward_to(place)
    return [to_device(next(data), CPU) for _ in range(count)]


def state_of(step: TrainStep) -> State:
    """Everything the next step depends on, on the CPU."""
    optimizers = OptimizerGroup(step.optimizers).state_dict()
    return State(
        {name: tensor.detach().to(CPU, copy=True) for name, tensor in tensors_of(step.model).items()},
        tree_map(lambda leaf: leaf.detach().to(CPU, copy=True) if isinstance(leaf, Tensor) else leaf, optimizers),
        dict(step.scaler.state_dict()) if step.scaler is not None else None,
        torch.get_rng_state(),
    )


def subject_of(config: RunConfig, workload: Workload, scene: Scene, deadline: float) -> Subject:
    """The scene as forensics takes it: on the CPU, without what does not change numbers there."""
    latest: list[nn.Module] = []

    def model() -> nn.Module:
        seed_everything(config.seed)
        latest[:] = [workload.model().train()]
        return latest[0]

    def optimizer(_parameters: list[nn.Parameter]) -> Any:
        return OptimizerGroup(checked_optimizers(workload, latest[0]))

    return Subject(
        model=model,
        batches=scene.batches,
        loss=workload.loss,
        optimizer=optimizer,
        recipe=on_cpu(config),
        accumulate=config.recipe.accumulate,
        seed=config.seed,
        start=scene.start,
        first_step=scene.first_step,
        deadline=deadline,
    )


def on_cpu(config: RunConfig) -> Any:
    """The run's recipe as a CPU replays it. Checkpointing, layout and compilation change no number that matters."""
    recipe = msgspec.structs.replace(
        config.recipe, gradient_checkpointing=(), channels_last=False, compile=False, ema_decay=None
    )
    if recipe.precision == "tf32":
        return msgspec.structs.replace(recipe, precision="32-true")
    if recipe.fp16_compute == "native" and config.device != "cpu":
        return msgspec.structs.replace(recipe, fp16_compute="auto")
    return recipe


Finder = Callable[[int, int], Scene | None]


def with_deadline(subject: Subject, seconds: float) -> Subject:
    """The subject with that much time left for trials."""
    return replace(subject, deadline=time.monotonic() + seconds)
