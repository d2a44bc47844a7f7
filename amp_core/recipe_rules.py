"""What a recipe may combine, and what a kind of device can run. Standard library only: the server asks, too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from amp_core.errors import RecipeError

if TYPE_CHECKING:
    from amp_core.config import Recipe

AUTOCAST = ("bf16-mixed", "16-mixed")
_OPERATION = re.compile(r"(aten(\.|::))?[A-Za-z_]\w*(\.\w+)?")


def check_recipe(recipe: Recipe) -> None:
    """Raise `RecipeError`, naming value, rule and remedy, for what cannot work on any device."""
    for check in _CHECKS:
        check(recipe)


def check_device(recipe: Recipe, device_type: str) -> None:
    """Raise `RecipeError` for what a kind of device (``cpu``, ``cuda``) cannot run, whichever model it is."""
    if device_type != "cpu":
        if recipe.fp16_compute == "emulated":
            raise RecipeError(
                f"fp16_compute='emulated' needs a CPU; {device_type!r} has real fp16 arithmetic: choose native or auto"
            )
        return
    if recipe.fp8_compute == "native":
        raise RecipeError(
            "fp8_compute='native' needs a CUDA device of compute capability 8.9; a CPU has no fp8 arithmetic: choose "
            "emulated or auto"
        )
    if recipe.precision == "tf32":
        raise RecipeError(
            "precision='tf32' needs a CUDA device of compute capability 8.0; a CPU has no TF32: choose 32-true or "
            "bf16-mixed"
        )
    if recipe.compile and recipe.precision == "fp8-mixed":
        raise RecipeError("compile=true with fp8 emulated on a CPU: emulated layers count casts; leave compile out")
    if recipe.compile and recipe.precision == "16-mixed" and recipe.fp16_compute != "native":
        raise RecipeError(
            "compile=true with fp16 emulated on a CPU: the emulation replaces kernels that a compiler would fuse away; "
            "leave compile out, or choose fp16_compute='native'"
        )


def is_emulated(recipe: Recipe, device_type: str) -> bool:
    """Whether arithmetic or lists of another device are imitated: then speed and memory mean nothing."""
    if recipe.precision == "fp8-mixed":
        return device_type == "cpu" or recipe.fp8_compute == "emulated"
    if device_type != "cpu":
        return False
    return recipe.autocast_policy == "cuda" or (recipe.precision == "16-mixed" and recipe.fp16_compute != "native")


def check_strategy(recipe: Recipe, strategy: str) -> None:
    """Raise `RecipeError` for what a strategy of several ranks does not do in this version."""
    if strategy != "fsdp":
        return
    for field, is_used in (("ema_decay", recipe.ema_decay is not None), ("compile", recipe.compile)):
        if is_used:
            raise RecipeError(f"{field} with strategy='fsdp' needs whole weights: choose strategy='ddp'")
    if recipe.precision == "fp8-mixed":
        raise RecipeError(
            "precision='fp8-mixed' with strategy='fsdp': scales would be those of shards; choose strategy='ddp'"
        )
    if recipe.precision in ("bf16-true", "16-true"):
        raise RecipeError(
            f"precision={recipe.precision!r} with strategy='fsdp' is not there, since shards are kept in FP32: choose "
            "bf16-mixed, or strategy='ddp'"
        )


def _check_scaler(recipe: Recipe) -> None:
    if recipe.precision == "16-mixed" and recipe.scaler is None:
        raise RecipeError("precision='16-mixed' needs a scaler: give kind dynamic, static or, on purpose, none")
    if recipe.precision == "16-mixed" or recipe.scaler is None or recipe.scaler.kind == "none":
        return
    if recipe.precision == "16-true":
        raise RecipeError(
            f"scaler kind={recipe.scaler.kind!r} with precision='16-true': gradients are stored in fp16, and unscaling "
            "them there loses what scaling saved; choose 16-mixed, or leave the scaler out"
        )
    raise RecipeError(
        f"scaler kind={recipe.scaler.kind!r} with precision={recipe.precision!r}: only 16-mixed needs loss scaling "
        "(bf16 and fp32 share one exponent range); leave the scaler out"
    )


def _check_arithmetic(recipe: Recipe) -> None:
    if recipe.precision != "16-mixed" and recipe.fp16_compute != "auto":
        raise RecipeError(
            f"fp16_compute={recipe.fp16_compute!r} with precision={recipe.precision!r}: it applies to 16-mixed only; "
            "leave it out"
        )
    if recipe.precision != "fp8-mixed" and recipe.fp8_compute != "auto":
        raise RecipeError(
            f"fp8_compute={recipe.fp8_compute!r} with precision={recipe.precision!r}: it applies to fp8-mixed only; "
            "leave it out"
        )
    if recipe.fp8_compute == "emulated" and recipe.compile:
        raise RecipeError("compile=true with fp8_compute='emulated': emulated layers count casts; leave compile out")
    if recipe.precision not in AUTOCAST and recipe.autocast_policy != "auto":
        raise RecipeError(
            f"autocast_policy={recipe.autocast_policy!r} with precision={recipe.precision!r}: nothing is lowered by "
            "autocast, or by the device's own list; leave it out"
        )
    if recipe.fp16_compute == "native" and recipe.autocast_policy == "cuda":
        raise RecipeError(
            "autocast_policy='cuda' with fp16_compute='native': native fp16 follows the device's own list; "
            "choose fp16_compute='emulated' or autocast_policy='native'"
        )


def _check_modules(recipe: Recipe) -> None:
    for field, patterns in (
        ("fp32_modules", recipe.fp32_modules),
        ("gradient_checkpointing", recipe.gradient_checkpointing),
    ):
        if any(not pattern for pattern in patterns):
            raise RecipeError(f"{field} holds an empty name: give module names or globs such as 'blocks.*.norm'")


def _check_operations(recipe: Recipe) -> None:
    for name in recipe.fp32_ops:
        if not _OPERATION.fullmatch(name):
            raise RecipeError(
                f"fp32_ops {name[:80]!r} is no name of an operation: give those of torch.ops.aten, such as softmax, "
                "layer_norm or aten.sum.dim_IntList"
            )
    if recipe.fp32_ops and recipe.precision not in AUTOCAST:
        raise RecipeError(
            f"fp32_ops with precision={recipe.precision!r}: they are exceptions from autocast in bf16 or fp16; "
            f"choose one of {', '.join(AUTOCAST)}"
        )
    if recipe.fp32_ops and recipe.compile:
        raise RecipeError(
            "fp32_ops with compile=true: a compiler keeps programs it has made before, whatever the rules are now; "
            "leave one of them out"
        )


def _check_step(recipe: Recipe) -> None:
    if recipe.accumulate < 1:
        raise RecipeError(f"accumulate={recipe.accumulate} must be at least 1 batch a step: leave it out for one")
    for field, value in (("clip_norm", recipe.clip_norm), ("clip_value", recipe.clip_value)):
        if value is not None and not 0.0 < value < float("inf"):
            raise RecipeError(f"{field}={value!r} must be positive and finite: 1.0 is usual; leave it out for none")
    if recipe.clip_norm is not None and recipe.clip_value is not None:
        raise RecipeError(
            f"clip_norm={recipe.clip_norm:g} and clip_value={recipe.clip_value:g}: one would undo what the other "
            "promises; choose one"
        )
    if recipe.ema_decay is not None and not 0.0 < recipe.ema_decay < 1.0:
        raise RecipeError(f"ema_decay={recipe.ema_decay!r} must lie between 0 and 1: 0.999 is usual; leave it out")


_CHECKS: tuple[Callable[[Recipe], None], ...] = (
    _check_scaler,
    _check_arithmetic,
    _check_modules,
    _check_operations,
    _check_step,
)
