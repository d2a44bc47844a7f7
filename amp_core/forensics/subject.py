"""What is diagnosed: a training that can be repeated from its start under any recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.config import Recipe

LOW_DTYPES = (torch.float16, torch.bfloat16)
REFERENCE = Recipe(name="reference", precision="32-true")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A repeatable training and the recipe under suspicion.

    ``model`` gives the same initial weights each time. ``reference_model`` is its FP32 original where ``model`` returns
    weights already stored low, which ``float()`` could not restore. With ``32-true`` autocast lowers nothing: what is
    low then is what the model stores low. ``accumulate`` batches make one optimizer step.
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


def low_dtype(subject: Subject) -> torch.dtype:
    """The low-precision type this training uses."""
    if subject.recipe.precision == "32-true":
        return stored_dtype(subject.model()) or torch.float32
    return torch.float16 if subject.recipe.precision == "16-mixed" else torch.bfloat16
