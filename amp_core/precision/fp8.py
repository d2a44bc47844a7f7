"""fp8-mixed: linear layers in fp8, the rest as in bf16-mixed; by torchao where the hardware has it, or emulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import nn

from amp_core.config import Recipe
from amp_core.errors import RecipeError
from amp_core.precision.autocast import Bf16Mixed
from amp_core.precision.fp8_linear import MULTIPLE, Fp8Counts, Fp8Linear
from amp_core.precision.fp32_modules import matching_modules

CAPABILITY = (8, 9)


def split_linears(model: nn.Module, recipe: Recipe) -> tuple[dict[str, nn.Linear], dict[str, str]]:
    """The linear layers that compute in fp8 by name, and why each other one does not."""
    kept = matching_modules(model, recipe.fp32_modules, "fp32_modules") if recipe.fp32_modules else {}
    chosen: dict[str, nn.Linear] = {}
    skipped: dict[str, str] = {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        if any(name == one or name.startswith(f"{one}.") for one in kept):
            skipped[name] = "kept in FP32 by the recipe"
        elif type(module) not in (nn.Linear, Fp8Linear):
            skipped[name] = f"{type(module).__name__} has a forward of its own"
        elif module.in_features % MULTIPLE or module.out_features % MULTIPLE:
            skipped[name] = f"{module.in_features} × {module.out_features} is off the multiples of {MULTIPLE}"
        else:
            chosen[name] = module
    return chosen, skipped


class Fp8Mixed(Bf16Mixed):
    """Linear layers by torchao's dynamic tensorwise recipe on CUDA, capability 8.9; everything else in bf16-mixed.

    Layers off the multiples of 16 stay in bf16, and are on the record with the reason.
    """

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        super().__init__(recipe, device)
        self.layers: list[str] = []
        self.skipped: dict[str, str] = {}

    def prepare(self, model: nn.Module) -> None:
        chosen, self.skipped = split_linears(model, self.recipe)
        self.layers = list(chosen)
        self._convert(model, chosen)
        super().prepare(model)

    def _convert(self, model: nn.Module, chosen: dict[str, nn.Linear]) -> None:
        """Replace the layers. Raises `RecipeError` without torchao."""
        try:
            from torchao.float8 import convert_to_float8_training
        except ImportError as error:
            raise RecipeError(
                f"precision='fp8-mixed' needs torchao on this device, which cannot be imported ({error}): install "
                "ampboard[fp8], or choose fp8_compute='emulated'"
            ) from error
        convert_to_float8_training(model, module_filter_fn=lambda _module, name: name in chosen)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "fp8_layers": self.layers, "fp8_skipped": self.skipped}


class EmulatedFp8Mixed(Fp8Mixed):
    """`Fp8Mixed` by casts to fp8 and FP32 products: what the rounding does, and no statement about speed."""

    numerics: ClassVar[str] = "emulated"
    counts: Fp8Counts

    def __init__(self, recipe: Recipe, device: torch.device) -> None:
        super().__init__(recipe, device)
        self.counts = Fp8Counts()

    def _convert(self, model: nn.Module, chosen: dict[str, nn.Linear]) -> None:
        """Nothing yet: layers change for the time of the run only."""

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        chosen, self.skipped = split_linears(model, self.recipe)
        self.layers = list(chosen)
        for module in chosen.values():
            module.__class__ = Fp8Linear
            module.counts = self.counts  # type: ignore[assignment]  # an Fp8Linear now
        try:
            with super().applied(model):
                yield
        finally:
            for module in chosen.values():
                module.__class__ = nn.Linear
                del module.counts

    def figures(self) -> dict[str, float]:
        return self.counts.take()


def check_capability(device: torch.device) -> None:
    """Raise `RecipeError` for a GPU without fp8."""
    found = torch.cuda.get_device_capability(device)
    if found < CAPABILITY:
        raise RecipeError(
            f"precision='fp8-mixed' needs compute capability 8.9; {torch.cuda.get_device_name(device)} has "
            f"{found[0]}.{found[1]}: choose fp8_compute='emulated', or bf16-mixed"
        )
