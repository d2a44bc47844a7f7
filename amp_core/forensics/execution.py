"""Running one arm of a subject: steps, states to return to, and what each step showed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.clipping import clip_norm, clip_value
from amp_core.forensics.attribution import CaughtError, caught
from amp_core.forensics.subject import Arm, Subject
from amp_core.precision import precision_for
from amp_core.scaler import LossScaler
from amp_core.seeding import perturb_weights, preserved_rng
from amp_core.torch_private.tensors import tree_map

CPU = torch.device("cpu")
KEPT_STATES = 24

Inspection = Callable[[nn.Module, torch.optim.Optimizer], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class State:
    """Everything a step depends on: tensors of the model by name, optimizer, scaler, random stream."""

    tensors: dict[str, Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, Any] | None
    rng: Tensor


@dataclass(slots=True)
class StepSeen:
    """One optimizer step: losses of its batches, gradients after unscaling, and what the update did."""

    losses: list[float]
    scale: float
    finite_gradients: bool
    skipped: bool
    gradient_max: dict[str, float]
    gradient_zero: dict[str, float]
    bad_weights: list[str]

    @property
    def loss(self) -> float:
        return sum(self.losses) / len(self.losses)


@dataclass(slots=True)
class Trajectory:
    """A training seen from outside. ``unsound`` holds the state before each step that showed something not finite."""

    steps: list[StepSeen] = field(default_factory=list)
    eval_losses: list[float] = field(default_factory=list)
    error: CaughtError | None = None
    initial: State | None = None
    unsound: dict[int, State] = field(default_factory=dict)  # by step, counted from 0; the first ones
    before_last: State | None = None
    final: State | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def losses(self) -> list[float]:
        return [loss for step in self.steps for loss in step.losses]

    @property
    def eval_loss(self) -> float | None:
        return sum(self.eval_losses) / len(self.eval_losses) if self.eval_losses else None


class Execution:
    """A model, optimizer and scaler under one arm. Use inside ``with execution.applied():``."""

    def __init__(self, subject: Subject, arm: Arm) -> None:
        self.subject = subject
        self.arm = arm
        torch.manual_seed(subject.seed)
        wide = arm.wide is not None
        build = subject.reference_model if wide and subject.reference_model is not None else subject.model
        self.model = build().train()
        self.precision = precision_for(arm.recipe, CPU)
        if arm.wide is not None:
            self.model.to(arm.wide)
        else:
            self.precision.prepare(self.model)
        if subject.start is not None:
            self._take_tensors(subject.start)
        if arm.perturbation:
            perturb_weights(self.model, arm.perturbation, subject.seed)
        self.optimizer = subject.optimizer([p for p in self.model.parameters() if p.requires_grad])
        scaled = arm.recipe.scaler is not None and arm.recipe.precision == "16-mixed"
        self.scaler = LossScaler.of(arm.recipe.scaler, CPU) if scaled and arm.recipe.scaler else None
        self.named = {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The arm's precision on the model; torch's random stream is left as it was."""
        with preserved_rng(CPU), ExitStack() as stack:
            torch.manual_seed(self.subject.seed)
            stack.enter_context(self.precision.applied(self.model))
            for handle in self._forced_dtypes():
                stack.callback(handle.remove)
            if self.subject.start is not None:
                self._take_rest(self.subject.start)
            yield

    def _forced_dtypes(self) -> list[Any]:
        modules = dict(self.model.named_modules())
        handles = []
        for name, dtypes in (self.arm.input_dtypes or {}).items():

            def cast(_module: nn.Module, args: Any, dtypes: Any = dtypes) -> Any:
                pairs = zip(args, dtypes, strict=False)
                return (
                    *(a if d is None or not isinstance(a, Tensor) else a.to(d) for a, d in pairs),
                    *args[len(dtypes) :],
                )

            handles.append(modules[name].register_forward_pre_hook(cast))
        return handles

    def batch(self, batch: Any) -> Any:
        """The batch as this arm takes it: doubles for an FP64 reference."""
        if self.arm.wide is not torch.float64:
            return batch
        return tree_map(lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t, batch)

    def forward(self, batch: Any) -> Tensor:
        with self.precision.forward():
            return self.subject.loss(self.model, self.batch(batch))

    def backward(self, loss: Tensor, scale: float | None = None) -> None:
        """Backward of one batch's share of a step, multiplied by the scaler's scale or by the one given."""
        share = loss / self.subject.accumulate
        if scale is not None:
            share = share * torch.tensor(scale, dtype=torch.float32)
        elif self.scaler is not None:
            share = self.scaler.scale(share)
        share.backward()  # type: ignore[no-untyped-call]

    def gradients(self, batches: Sequence[Any]) -> list[float]:
        """Gradients of one step, unscaled, in ``.grad``; returns the losses."""
        losses = []
        for batch in batches:
            loss = self.forward(batch)
            losses.append(float(loss.detach()))
            self.backward(loss)
        if self.scaler is not None and self.scaler.is_enabled():
            self.scaler.unscale_(self.optimizer)
        return losses

    def step(self, batches: Sequence[Any], update: bool = True) -> StepSeen:
        """One optimizer step."""
        scale = float(self.scaler.current_scale) if self.scaler is not None else 1.0
        losses = self.gradients(batches)
        found = {name: p.grad.detach() for name, p in self.named.items() if p.grad is not None}
        finite = all(bool(torch.isfinite(g).all()) for g in found.values())
        self._clip(finite)
        largest = {name: float(g.abs().max()) for name, g in found.items() if g.numel()}
        zeros = {name: float((g == 0).float().mean()) for name, g in found.items() if g.numel()}
        skipped = self.finish() if update or self.scaler is not None else False
        bad = [name for name, t in tensors_of(self.model).items() if not bool(torch.isfinite(t).all())]
        self.optimizer.zero_grad()
        return StepSeen(losses, scale, finite, skipped, largest, zeros, bad)

    def finish(self) -> bool:
        """The update from the gradients at hand; whether the scaler left it out."""
        if self.scaler is not None:
            return bool(self.scaler.finish(self.optimizer).found_inf > 0)
        self.optimizer.step()
        return False

    def _clip(self, finite: bool) -> None:
        recipe = self.arm.recipe
        parameters = list(self.named.values())
        if finite and recipe.clip_norm is not None:
            clip_norm(parameters, recipe.clip_norm, None)
        elif finite and recipe.clip_value is not None:
            clip_value(parameters, recipe.clip_value)

    def evaluate(self) -> list[float]:
        self.model.eval()
        with torch.no_grad():
            losses = [float(self.forward(batch)) for batch in self.subject.eval_batches]
        self.model.train()
        return losses

    def state(self) -> State:
        scaler = self.scaler.state_dict() if self.scaler is not None else None
        tensors = {name: tensor.detach().clone() for name, tensor in tensors_of(self.model).items()}
        return State(tensors, copy.deepcopy(self.optimizer.state_dict()), scaler, torch.get_rng_state())

    def load(self, state: State) -> None:
        """Continue from a state, also one of another arm.

        Values that are only the rounding of this arm's own are not taken over: a reference keeps its digits.
        """
        self._take_tensors(state)
        self._take_scaler(state)
        torch.set_rng_state(state.rng)

    def _take_tensors(self, state: State) -> None:
        with torch.no_grad():
            for name, tensor in tensors_of(self.model).items():
                given = state.tensors.get(name)
                if given is not None and given.shape == tensor.shape:
                    tensor.copy_(torch.where(tensor.to(given.dtype) == given, tensor, given.to(tensor.dtype)))

    def _take_scaler(self, state: State) -> None:
        """The scale of the run, unless the arm is a trial of another scaler."""
        if self.scaler is not None and state.scaler and self.arm.recipe.scaler == self.subject.recipe.scaler:
            self.scaler.load_state_dict(state.scaler)

    def _take_rest(self, start: State) -> None:
        """What goes with the weights at the beginning: moments of the optimizer, scale, random stream."""
        if start.optimizer:
            self.optimizer.load_state_dict(copy.deepcopy(start.optimizer))
        self._take_scaler(start)
        torch.set_rng_state(start.rng)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Every floating-point parameter and buffer by name."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: tensor for name, tensor in named if tensor.is_floating_point()}


def follow(subject: Subject, arm: Arm, inspect: Inspection | None = None) -> Trajectory:
    """Train to the horizon and evaluate; an error of the code ends it and is part of what was seen.

    ``inspect`` looks at model and optimizer afterwards, and what it returns is kept as ``extra``.
    """
    seen = Trajectory()
    execution = Execution(subject, arm)
    with execution.applied():
        seen.initial = execution.state()
        try:
            _train(execution, seen)
            seen.final = execution.state()
            seen.eval_losses = execution.evaluate()
        except Exception as error:  # noqa: BLE001 - what the code raises is what is diagnosed
            seen.error = caught(error, execution.model)
        if inspect is not None:
            seen.extra = inspect(execution.model, execution.optimizer)
    return seen


def _train(execution: Execution, seen: Trajectory) -> None:
    subject = execution.subject
    for number in range(subject.num_steps):
        seen.before_last = before = execution.state()
        step = execution.step(subject.micro_batches(number), update=number not in execution.arm.without_update)
        seen.steps.append(step)
        sound = step.finite_gradients and not step.bad_weights and all(map(_finite, step.losses))
        if not sound and len(seen.unsound) < KEPT_STATES:
            seen.unsound[number] = before


def _finite(value: float) -> bool:
    return value - value == 0.0
