"""From a recipe and a device to the precision that really runs, or to an error; never to a silent substitute."""

from __future__ import annotations

import torch

from amp_core.config import Recipe
from amp_core.errors import RecipeError
from amp_core.precision.autocast import Bf16Mixed, Fp16Mixed
from amp_core.precision.base import Fp32, Tf32
from amp_core.precision.emulated import CudaListsBf16Mixed, EmulatedFp16Mixed, NativeListsFp16Mixed
from amp_core.precision.fp8 import EmulatedFp8Mixed, Fp8Mixed, check_capability
from amp_core.precision.true_low import Bf16True, Fp16True
from amp_core.recipe_rules import check_device

_SIMPLE: dict[str, type[Fp32]] = {"32-true": Fp32, "tf32": Tf32, "bf16-true": Bf16True, "16-true": Fp16True}


def precision_for(recipe: Recipe, device: torch.device) -> Fp32:
    """The precision a recipe means on a device.

    ``fp16_compute='auto'`` is emulated on every CPU, so that results do not depend on the host's fp16 kernels, and
    native on CUDA. ``autocast_policy='auto'`` is CUDA's list where fp16 is emulated, else the device's own.

    Raises:
        RecipeError: if the device cannot run the recipe.
    """
    if device.type not in ("cpu", "cuda"):
        raise RecipeError(f"device={str(device)!r} is not supported: choose cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RecipeError(f"device={str(device)!r} needs a CUDA device and this torch sees none: choose cpu")
    check_device(recipe, device.type)
    if device.type == "cuda" and recipe.precision in ("tf32", "bf16-mixed", "bf16-true", "fp8-mixed"):
        _check_ampere(recipe, device)
    simple = _SIMPLE.get(recipe.precision)
    if simple is not None:
        return simple(recipe, device)
    if recipe.precision == "fp8-mixed":
        return _fp8(recipe, device)
    if recipe.precision == "bf16-mixed":
        other_lists = recipe.autocast_policy == "cuda" and device.type == "cpu"
        return CudaListsBf16Mixed(recipe, device) if other_lists else Bf16Mixed(recipe, device)
    if recipe.fp16_compute == "native" or (recipe.fp16_compute == "auto" and device.type == "cuda"):
        return Fp16Mixed(recipe, device)
    return (NativeListsFp16Mixed if recipe.autocast_policy == "native" else EmulatedFp16Mixed)(recipe, device)


def _fp8(recipe: Recipe, device: torch.device) -> Fp8Mixed:
    """By torchao on CUDA unless emulation was asked for; a GPU without fp8 is refused, a CPU always emulates."""
    if device.type == "cpu" or recipe.fp8_compute == "emulated":
        return EmulatedFp8Mixed(recipe, device)
    check_capability(device)
    return Fp8Mixed(recipe, device)


def _check_ampere(recipe: Recipe, device: torch.device) -> None:
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        raise RecipeError(
            f"precision={recipe.precision!r} needs compute capability 8.0; {torch.cuda.get_device_name(device)} has "
            f"{major}.{minor}: choose 16-mixed or 32-true"
        )
