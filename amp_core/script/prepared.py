"""From a script's own models and optimizers to ones that follow a recipe, in place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import msgspec
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from amp_core.config import Recipe, RunConfig
from amp_core.ema import Ema
from amp_core.errors import ContractError, RecipeError
from amp_core.gradient_checkpointing import checkpoint_modules
from amp_core.optimizers import start_momentum
from amp_core.precision import Precision, precision_for
from amp_core.precision.fp32_modules import LOW_DTYPES, matching_modules
from amp_core.real_steps import RealSteps
from amp_core.scaler import LossScaler
from amp_core.script.ledger import GradientLedger
from amp_core.seeding import perturb_weights
from amp_core.torch_private.tensors import tree_map


class Prepared:
    """Model, optimizers, scaler and schedules of a script under one recipe; what a checkpoint captures.

    Several models count as one whose parts are called ``0``, ``1`` and so on. Raises `ContractError` for what cannot be
    prepared and `RecipeError` for what the device cannot run.
    """

    def __init__(self, things: Sequence[Any], config: RunConfig, device: torch.device, lasting: ExitStack) -> None:
        models = [thing for thing in things if isinstance(thing, nn.Module)]
        self.optimizers = tuple(thing for thing in things if isinstance(thing, torch.optim.Optimizer))
        self.schedules = tuple(thing for thing in things if isinstance(thing, LRScheduler))
        _check(things, models, self.optimizers, self.schedules)
        self.model = models[0] if len(models) == 1 else nn.ModuleList(models)
        self.precision = precision_for(config.recipe, device)
        _check_recipe(config.recipe)
        if config.init_perturbation:
            perturb_weights(self.model, config.init_perturbation, config.seed)
        self.model.to(device)
        kept: list[str] = []
        for number, (model, recipe) in enumerate(zip(models, _recipes(config.recipe, models), strict=True)):
            precision = self.precision if len(models) == 1 else precision_for(recipe, device)
            names = matching_modules(model, recipe.fp32_modules, "fp32_modules") if recipe.fp32_modules else {}
            kept += names if len(models) == 1 else [f"{number}.{name}" for name in names]
            precision.prepare(model)
            checkpoint_modules(model, recipe.gradient_checkpointing)
            lasting.enter_context(precision.applied(model))
            if recipe.compile:
                model.compile()
        for optimizer in self.optimizers:
            start_momentum(optimizer)
        scales = config.recipe.precision == "16-mixed" and config.recipe.scaler is not None
        self.scaler = LossScaler.of(config.recipe.scaler, device) if scales and config.recipe.scaler else None
        self.ema = Ema(self.model, config.recipe.ema_decay) if config.recipe.ema_decay is not None else None
        self.real_steps = RealSteps((), self.ema)
        labels = (
            ["the optimizer"] if len(self.optimizers) == 1 else [f"optimizer {i}" for i in range(len(self.optimizers))]
        )
        self.ledgers = [GradientLedger(o, label) for o, label in zip(self.optimizers, labels, strict=True)]
        self.parameters = [p for ledger in self.ledgers for p in ledger.parameters]
        self.models = models
        self.kept = tuple(kept)  # names of the modules held in FP32, within ``model``

    def ledger(self, optimizer: torch.optim.Optimizer) -> GradientLedger:
        """The ledger of a prepared optimizer. Raises `ContractError` for another one."""
        for ledger in self.ledgers:
            if ledger.optimizer is optimizer:
                return ledger
        raise ContractError(f"{type(optimizer).__name__} was not prepared: name it in amp.prepare(model, optimizer)")


def route_step(optimizer: torch.optim.Optimizer, routed: Callable[[Callable[[], Any]], Any]) -> None:
    """Let ``optimizer.step()`` call ``routed(original)``; what the scaler calls from inside it reaches the original."""
    original = optimizer.step
    inside = False

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        if inside:
            return original(*args, **kwargs)
        if args or kwargs:
            raise ContractError(
                "optimizer.step(closure) in script mode: the closure would compute gradients the scaler has not seen; "
                "call s.backward(loss) and then optimizer.step()"
            )
        inside = True
        try:
            return routed(original)
        finally:
            inside = False

    optimizer.step = step  # type: ignore[method-assign]


def gate_schedule(schedule: LRScheduler, num_real_steps: Callable[[], int]) -> None:
    """Let the schedule move only if a step has changed the weights since it was last asked to.

    By a subclass of its own, so that its state dict stays what it was.
    """
    kind = type(schedule)
    seen = num_real_steps()

    def step(self: LRScheduler, *args: Any, **kwargs: Any) -> None:
        nonlocal seen
        now = num_real_steps()
        if now > seen:
            kind.step(self, *args, **kwargs)
        seen = now

    schedule.__class__ = type(kind.__name__, (kind,), {"step": step, "__module__": kind.__module__})


def autocast_outside(model: nn.Module, precision: Precision, is_inside: Callable[[Any], bool]) -> Iterator[Any]:
    """Hooks that run the model under the recipe outside of steps, too, and give its outputs back in FP32.

    ``is_inside`` is asked with the inputs of every call; where it is true the step's own autocast is in force.
    """
    regions: list[AbstractContextManager[Any] | None] = []

    def enter(_module: nn.Module, args: Any, kwargs: Any) -> None:
        region = None if is_inside((args, kwargs)) else precision.forward()
        regions.append(region)
        if region is not None:
            region.__enter__()

    def leave(_module: nn.Module, _args: Any, output: Any) -> Any:
        region = regions.pop()
        if region is None:
            return output
        region.__exit__(None, None, None)
        return tree_map(lambda v: v.float() if isinstance(v, Tensor) and v.dtype in LOW_DTYPES else v, output)

    yield model.register_forward_pre_hook(enter, with_kwargs=True)
    yield model.register_forward_hook(leave, always_call=True)


@contextmanager
def hooks(handles: Sequence[Any]) -> Iterator[None]:
    """Remove the hooks at the end."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _check(
    things: Sequence[Any],
    models: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    schedules: Sequence[LRScheduler],
) -> None:
    if len(models) + len(optimizers) + len(schedules) < len(things):
        known = (nn.Module, torch.optim.Optimizer, LRScheduler)
        other = next(type(thing).__name__ for thing in things if not isinstance(thing, known))
        raise ContractError(f"amp.prepare() got {other}: give models, optimizers and learning rate schedulers")
    if not models or not optimizers:
        raise ContractError("amp.prepare() needs a model and an optimizer: amp.prepare(model, optimizer)")
    seen: set[int] = set()
    for parameter in (p for o in optimizers for group in o.param_groups for p in group["params"]):
        if id(parameter) in seen:
            raise ContractError("a parameter is in two of the optimizers: its gradient would be used twice; keep one")
        seen.add(id(parameter))
        if parameter.dtype in LOW_DTYPES:
            raise ContractError(
                f"a parameter is {parameter.dtype}: mixed precision keeps its weights in FP32; drop .half() or "
                ".bfloat16(), and the recipe lowers what it should"
            )


def _check_recipe(recipe: Recipe) -> None:
    if recipe.accumulate > 1:
        raise RecipeError(
            f"accumulate={recipe.accumulate} in script mode: your loop decides how many batches a step takes; leave it "
            "out, divide the loss and call optimizer.step() after the last one"
        )


def _recipes(recipe: Recipe, models: Sequence[nn.Module]) -> list[Recipe]:
    """The recipe for each model, with the module patterns that mean something in it."""
    if len(models) == 1:
        return [recipe]
    given = {"fp32_modules": recipe.fp32_modules, "gradient_checkpointing": recipe.gradient_checkpointing}
    kept: list[dict[str, tuple[str, ...]]] = []
    for model in models:
        kept.append({field: tuple(p for p in ps if _matches(model, p, field)) for field, ps in given.items()})
    for field, patterns in given.items():
        for pattern in patterns:
            if not any(pattern in fields[field] for fields in kept):
                matching_modules(nn.ModuleList(models), [pattern], field)  # raises, with the nearest names
    return [msgspec.structs.replace(recipe, **fields) for fields in kept]


def _matches(model: nn.Module, pattern: str, field: str) -> bool:
    try:
        return bool(matching_modules(model, [pattern], field))
    except RecipeError:
        return False
