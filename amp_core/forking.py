"""A run that begins at another run's checkpoint: its weights and optimizer state under a recipe of this run's own.

What is carried over, and what begins anew, is decided in docs/decisions/0110-forks.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor, nn

from amp_core.checkpoints import load
from amp_core.config import Fork, RunConfig
from amp_core.errors import ForkError, NotResumable
from amp_core.precision import Precision
from amp_core.resume import load_training, recipe_identity, set_rng_states
from amp_core.seeding import perturbation, perturbation_generator
from amp_core.setup import build_step
from amp_core.step import TrainStep
from amp_core.training_data import TrainingData
from amp_core.workload import Workload


def built(config: RunConfig, workload: Workload, precision: Precision) -> TrainStep:
    """The run's step before its first one, with the weights of its seed; `begin` puts a fork's weights there."""
    perturbation = config.init_perturbation if config.fork is None else 0.0  # there the checkpoint's are perturbed
    return build_step(workload, config.recipe, precision, config.seed, schedule_steps(config), perturbation)


def schedule_steps(config: RunConfig) -> int:
    """For how many steps learning rates are laid out: a fork goes on in the schedule of the run it forks from."""
    return config.steps if config.fork is None else config.fork.steps


def begin(config: RunConfig, step: TrainStep, data: TrainingData) -> None:
    """Take a freshly built step and its data to the run's beginning, if that is another run's checkpoint.

    Raises:
        ForkError: if the checkpoint is not there, is damaged, or was made by another training.
    """
    if config.fork is not None:
        enter(config, config.fork, step, data, perturbed(config, step.model, state_at(config, config.fork)))


def state_at(config: RunConfig, fork: Fork) -> dict[str, Any]:
    """What the checkpoint holds. Raises `ForkError`."""
    try:
        if Path(fork.path).name != fork.name:
            raise NotResumable(f"it is to be found as {fork.path!r}")
        state = load(Path(fork.path))
    except NotResumable as error:
        raise ForkError(
            f"step {fork.step} of run {fork.run} cannot be forked, since its checkpoint cannot be read: {error}. Fork "
            "from another kept checkpoint, or run that training again with keep_checkpoints"
        ) from error
    told = msgspec.json.decode(state["identity"])
    wanted = [[config.workload.name, config.workload.params], fork.seed, fork.steps, fork.step]
    found = [told["workload"], told["seed"], told["steps"], state["progress"]["number"]]
    if _spelled(wanted) != _spelled(found):
        raise ForkError(
            f"checkpoint {fork.name} was made by another training than step {fork.step} of run {fork.run}: it has "
            f"workload, seed, length and step {found}, where {wanted} are meant. Submit the fork again"
        )
    return state


def perturbed(config: RunConfig, model: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """The state with the weights of the A/A control: the checkpoint's, changed as those of a seed are."""
    if not config.init_perturbation:
        return state
    weights = dict(state["model"])
    factors: dict[int, Tensor] = {}
    generator = perturbation_generator(config.seed)
    for name, parameter in model.named_parameters(remove_duplicate=False):  # a tied weight is saved under each name
        if parameter.is_floating_point() and name in weights:
            if id(parameter) not in factors:
                factors[id(parameter)] = perturbation(weights[name].shape, config.init_perturbation, generator)
            weights[name] = weights[name].float() * factors[id(parameter)]
    return {**state, "model": weights}


def enter(config: RunConfig, fork: Fork, step: TrainStep, data: TrainingData, state: dict[str, Any]) -> None:
    """Put a checkpoint's training under this run's recipe. Raises `ForkError` if it does not fit the model."""
    try:
        load_training(step, state)
        if is_same_recipe(config, state) and step.scaler is not None and step.scaler.is_enabled():
            step.scaler.load_state_dict(state["scaler"])
        if (ema := step.real_steps.ema) is not None:
            if state["ema"]:
                ema.load_state_dict(state["ema"])
            else:
                ema.restart()
        _go_on_with(config, fork, step, data, state)
    except (KeyError, ValueError, RuntimeError, NotResumable) as error:
        raise ForkError(f"the checkpoint of run {fork.run} does not fit this model or its data: {error}") from error


def _go_on_with(config: RunConfig, fork: Fork, step: TrainStep, data: TrainingData, state: dict[str, Any]) -> None:
    """The data and random numbers after the checkpoint: those of its own run for its own seed, else this seed's.

    Another seed goes on at the same place of its own order, so that epochs end after the same steps for every seed.
    """
    place = state["data"]
    if config.seed != fork.seed:
        data.start_at(place["epoch"], place["index"])
        return
    data.forward_to(place)
    set_rng_states(state["rng"], step.precision.device)


def is_same_recipe(config: RunConfig, state: dict[str, Any]) -> bool:
    """Whether the checkpoint was made under this very recipe, whatever the two are called."""
    made_by = msgspec.json.decode(state["identity"])["recipe"]
    return _spelled({**made_by, "name": ""}) == _spelled({**recipe_identity(config.recipe), "name": ""})


def _spelled(value: Any) -> bytes:
    """Equal for values that a checkpoint's identity, which is JSON, cannot tell apart."""
    return msgspec.json.encode(value, order="deterministic")
