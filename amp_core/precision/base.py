"""True FP32: the base of every precision, which leaves numbers alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch import nn

from amp_core.config import Recipe
from amp_core.precision.fp32_modules import keep_in_fp32, matching_modules
from amp_core.precision.fp32_ops import KeptOps, keep_ops_in_fp32
from amp_core.precision.layout import channels_last_inputs
from amp_core.precision.tf32 import tf32_off, tf32_on


class Fp32:
    """FP32 without TF32; subclasses override only what differs.

    Use: ``prepare`` on the fresh model, ``with precision.applied(model):`` around the whole run, ``with
    precision.forward():`` around each forward and loss, never around backward. An instance serves one model.
    """

    numerics: ClassVar[str] = "native"
    lowers: ClassVar[bool] = False  # whether anything is computed in fewer bits than FP32

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        self.recipe = recipe
        self.device = device
        self.kept_ops: KeptOps | None = None  # while `applied` is open, if the recipe names any

    def prepare(self, model: nn.Module) -> None:
        """Change the weights as the recipe wants them stored, before the optimizer takes them."""
        if self.recipe.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Set up what lasts for the whole run and undo it afterwards. Raises `RecipeError` for an unknown module
        or operation.
        """
        with ExitStack() as stack:
            stack.enter_context(self._fp32_arithmetic())
            if self.recipe.channels_last:
                stack.enter_context(channels_last_inputs(model))
            if self.recipe.fp32_modules:
                modules = matching_modules(model, self.recipe.fp32_modules, "fp32_modules")
                stack.enter_context(keep_in_fp32(modules.values(), self.device.type))
            if self.recipe.fp32_ops:
                self.kept_ops = stack.enter_context(keep_ops_in_fp32(self.recipe.fp32_ops, self.device.type))
            yield

    def _fp32_arithmetic(self) -> AbstractContextManager[None]:
        return tf32_off()

    def forward(self) -> AbstractContextManager[Any]:
        """The context of one forward pass and its loss."""
        return nullcontext()

    def figures(self) -> dict[str, float]:
        """Series of its own since the last call, such as shares of casts that saturated; waits for the device."""
        return {}

    def describe(self) -> dict[str, Any]:
        """What really runs, for the record."""
        return {"precision": self.recipe.precision, "numerics": self.numerics, "autocast": None}


class Tf32(Fp32):
    """FP32 storage with TensorFloat-32 products: 10 bits of mantissa in matrix products and convolutions on CUDA."""

    def _fp32_arithmetic(self) -> AbstractContextManager[None]:
        return tf32_on()
