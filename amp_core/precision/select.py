"""From a recipe and a device to the precision that really runs, or to an error; never to a silent substitute."""

from __future__ import annotations

import torch

from amp_core.config import Recipe
from amp_core.errors import RecipeError
from amp_core.precision.autocast import Bf16Mixed, Fp16Mixed
from amp_core.precision.base import Fp32
from amp_core.precision.emulated import CudaListsBf16Mixed, EmulatedFp16Mixed, NativeListsFp16Mixed


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
    if recipe.precision == "32-true":
        return Fp32(recipe, device)
    if recipe.precision == "bf16-mixed":
        if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            name = torch.cuda.get_device_name(device)
            raise RecipeError(
                f"precision='bf16-mixed' needs compute capability 8.0; {name} is below it: choose 16-mixed or 32-true"
            )
        other_lists = recipe.autocast_policy == "cuda" and device.type == "cpu"
        return CudaListsBf16Mixed(recipe, device) if other_lists else Bf16Mixed(recipe, device)
    if recipe.fp16_compute == "native" or (recipe.fp16_compute == "auto" and device.type == "cuda"):
        return Fp16Mixed(recipe, device)
    if device.type != "cpu":
        raise RecipeError(
            f"fp16_compute='emulated' needs a CPU; {str(device)!r} has real fp16 arithmetic: choose native or auto"
        )
    return (NativeListsFp16Mixed if recipe.autocast_policy == "native" else EmulatedFp16Mixed)(recipe, device)
