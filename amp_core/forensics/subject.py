"""What is diagnosed: a training that can be repeated from its start under any recipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from amp_core.config import TRUE_LOW, Recipe

if TYPE_CHECKING:
    from amp_core.forensics.execution import State

LOW_DTYPES = (torch.float16, torch.bfloat16)
REFERENCE = Recipe(name="reference", precision="32-true")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A repeatable training and the recipe under suspicion.

    ``model`` gives the same initial weights each time. ``reference_model`` is its FP32 original where ``model`` returns
    weights already stored low, which ``float()`` could not restore. With ``32-true`` autocast lowers nothing: what is
    low then is what the model stores low. ``accumulate`` batches make one optimizer step. With ``start`` the training
    begins there instead of at the model's own weights, and its first step is number ``first_step``.
    ``deadline`` is a time of `time.monotonic` after which no further trial begins.
    """

    model: Callable[[], nn.Module]
    batches: Sequence[Any]
    loss: Callable[[nn.Module, Any], Tensor]
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer]
    recipe: Recipe
    eval_batches: Sequence[Any] = ()
    accumulate: int = 1
    reference_model: Callable[[], nn.Module] | None = None
    seed: int = 0
    start: State | None = None
    first_step: int = 1
    deadline: float | None = None

    @property
    def late(self) -> bool:
        """Whether the time for trials is over."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def evaluating(self, eval_batches: Sequence[Any]) -> Subject:
        """The subject without its training: what evaluation shows from the start."""
        return replace(self, batches=[], eval_batches=eval_batches)

    def taking(self, accumulate: int) -> Subject:
        """The subject with that many batches to a step."""
        return replace(self, accumulate=accumulate)

    @property
    def num_steps(self) -> int:
        return len(self.batches) // self.accumulate

    def micro_batches(self, step: int) -> Sequence[Any]:
        """The batches of an optimizer step, counted from 0."""
        return self.batches[step * self.accumulate : (step + 1) * self.accumulate]


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One way to run a subject: its recipe, a reference in FP32 or FP64, a variation.

    ``wide`` converts the model's floating-point weights and buffers. ``perturbation`` is relative (the A/A control).
    ``input_dtypes`` forces each named module's tensor inputs to the given types, in order. ``without_update`` are
    steps, counted from 0, whose gradients are thrown away: what a twin of a run with skipped steps does.
    """

    recipe: Recipe
    wide: torch.dtype | None = None
    perturbation: float = 0.0
    input_dtypes: dict[str, tuple[torch.dtype | None, ...]] | None = None
    without_update: frozenset[int] = frozenset()


FP32_ARM = Arm(recipe=REFERENCE, wide=torch.float32)
FP64_ARM = Arm(recipe=REFERENCE, wide=torch.float64)


def stored_dtype(model: nn.Module) -> torch.dtype | None:
    """The low type in which the model stores weights or buffers, or None."""
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.dtype in LOW_DTYPES:
            return tensor.dtype
    return None


def stored_low(subject: Subject, recipe: Recipe) -> torch.dtype | None:
    """The low type in which weights or buffers are stored under the recipe: the recipe's, or the model's own choice."""
    if recipe.precision in TRUE_LOW:
        return torch.float16 if recipe.precision == "16-true" else torch.bfloat16
    return stored_dtype(subject.model())


def low_dtype(subject: Subject) -> torch.dtype:
    """The low-precision type this training uses."""
    if subject.recipe.precision in ("32-true", "tf32"):
        return stored_dtype(subject.model()) or torch.float32
    return torch.float16 if subject.recipe.precision in ("16-mixed", "16-true") else torch.bfloat16
