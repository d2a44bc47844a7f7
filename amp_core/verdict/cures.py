"""Which recipe should mend a finding. A cure is a proposal, to be run, and says so."""

from __future__ import annotations

from typing import Any

from amp_core.config import Recipe
from amp_core.verdict.comparison import Cure

DYNAMIC = {"kind": "dynamic"}


def scaling_cure(recipe: Recipe) -> Cure | None:
    """For gradients that vanish: dynamic loss scaling; where that already runs, bf16's exponent range."""
    if recipe.precision != "16-mixed":
        return None
    if recipe.scaler is not None and recipe.scaler.kind != "dynamic":
        return Cure(
            sentence="Dynamic loss scaling lifts small gradients into fp16's range.",
            recipe=_object(recipe, "16-mixed", scaler=DYNAMIC),
        )
    return _bf16(recipe, "bf16 has FP32's exponent range, so gradients this small do not vanish.")


def range_cure(recipe: Recipe) -> Cure | None:
    """For values that overflow: dynamic scaling if the scale may be the cause, else bf16's exponent range."""
    if recipe.precision != "16-mixed":
        return None
    if recipe.scaler is not None and recipe.scaler.kind == "none":
        return Cure(
            sentence="With dynamic loss scaling a step with an infinite gradient is skipped and does no harm.",
            recipe=_object(recipe, "16-mixed", scaler=DYNAMIC),
        )
    if recipe.scaler is not None and recipe.scaler.kind == "static":
        return Cure(
            sentence="Dynamic loss scaling lowers the scale until gradients fit.",
            recipe=_object(recipe, "16-mixed", scaler=DYNAMIC),
        )
    return _bf16(recipe, "bf16 has FP32's exponent range, so values this large do not overflow.")


def _bf16(recipe: Recipe, sentence: str) -> Cure:
    return Cure(sentence=sentence, recipe=_object(recipe, "bf16-mixed"))


def _object(recipe: Recipe, precision: str, scaler: dict[str, Any] | None = None) -> dict[str, Any]:
    """The recipe as an object to submit; its name is left to the server's default."""
    given: dict[str, Any] = {"precision": precision}
    if scaler is not None:
        given["scaler"] = dict(scaler)
        if recipe.fp16_compute != "auto":
            given["fp16_compute"] = recipe.fp16_compute
    if recipe.fp32_modules:
        given["fp32_modules"] = list(recipe.fp32_modules)
    return given
