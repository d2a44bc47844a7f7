"""Which analyses there are besides training and benchmarking, and the options of each.

An analysis is a run of its own kind: it executes a workload under a recipe to answer one question, and its answer is an
`amp_core.events.Report`. Standard library and msgspec only: the server checks options before anything is queued.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from amp_core.config import Recipe
from amp_core.errors import AnalysisError
from amp_core.recipe_rules import is_emulated


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of an analysis's options; each has a default, and ``__post_init__`` checks the values."""


STRESS_CASES = {
    "ordinary": "the batch as it is",
    "masked_rows": "one sample without any content: masks false, inputs zero",
    "all_masked": "every sample without content",
    "zero_variance": "every value of a sample the same",
    "zero_vectors": "all inputs zero",
    "huge_inputs": "inputs so large that the largest is 60,000, near the end of fp16's range",
    "beyond_fp16": "inputs so large that the largest is 1,000,000",
    "tiny_inputs": "inputs so small that the largest is 1e-7",
    "huge_logits": "the last module's outputs so large that the largest is 30,000",
    "tiny_loss": "the loss times 2**-20",
    "huge_loss": "the loss times 2**20",
    "long_reduction": "the batch 16 times over, so that means and sums run over many elements",
    "long_sequence": "the second dimension four times as long",
    "large_integers": "integer inputs moved up to 5,000, beyond what half precision counts exactly",
    "odd_shape": "the second dimension one shorter, and an odd number of samples",
    "one_sample": "a batch of one sample",
    "empty_batch": "a last batch of no samples",
}


class SensitivityOptions(Options, frozen=True, kw_only=True):
    """How the smallest FP32 set is searched for: of modules, or ``by`` operations (`amp_core.config.Recipe.fp32_ops`).

    From the state after ``start`` FP32 steps, each trial repeats the next ``horizon`` steps. A set passes if the losses
    stay within ``loss_tolerance`` of FP32's (relative, mean over the steps) and every module's change of weights within
    ``update_tolerance`` (relative), or within the noise of FP32 against itself where that is more.
    """

    by: Literal["module", "op"] = "module"
    start: int = 20
    horizon: int = 10
    max_evaluations: int = 200
    max_seconds: float = 900.0
    loss_tolerance: float = 0.01
    update_tolerance: float = 0.5
    speed: bool = True

    def __post_init__(self) -> None:
        _at_least("start", self.start, 0)
        _at_least("horizon", self.horizon, 1)
        _at_least("max_evaluations", self.max_evaluations, 1)
        _above_zero("max_seconds", self.max_seconds)
        _above_zero("loss_tolerance", self.loss_tolerance)
        _above_zero("update_tolerance", self.update_tolerance)


class StressOptions(Options, frozen=True, kw_only=True):
    """How the stress battery runs: from the state after ``start`` FP32 steps, all ``cases`` or those named.

    A result differs if it is off by more than ``tolerance`` (relative, 2-norm) and by ten times more than on an
    ordinary batch.
    """

    start: int = 20
    cases: tuple[str, ...] = ()
    tolerance: float = 0.1
    max_seconds: float = 900.0

    def __post_init__(self) -> None:
        _at_least("start", self.start, 0)
        _above_zero("tolerance", self.tolerance)
        _above_zero("max_seconds", self.max_seconds)
        for case in self.cases:
            if case not in STRESS_CASES:
                raise AnalysisError(f"case {case!r} is unknown: choose from {', '.join(STRESS_CASES)}")


class BatchSizeOptions(Options, frozen=True, kw_only=True):
    """How the largest batch is searched for: from ``first`` (the workload's own size) up to ``largest`` samples.

    ``resolution``: how near, relatively, the largest that fits and the smallest that does not come.
    ``memory_limit_bytes``: a ceiling; None means the device's memory, or four fifths of what a CPU's host has free.
    ``steps``: timed steps of each size.
    """

    first: int | None = None
    largest: int = 65536
    resolution: float = 0.05
    memory_limit_bytes: int | None = None
    steps: int = 5
    max_seconds: float = 900.0

    def __post_init__(self) -> None:
        if self.first is not None:
            _at_least("first", self.first, 1)
        _at_least("largest", self.largest, 1)
        _at_least("resolution", self.resolution, 0)
        _at_least("steps", self.steps, 1)
        _above_zero("max_seconds", self.max_seconds)
        if self.memory_limit_bytes is not None:
            _at_least("memory_limit_bytes", self.memory_limit_bytes, 1)


class LayersOptions(Options, frozen=True, kw_only=True):
    """Which steps are compared layer by layer, from the state after ``start`` FP32 steps on.

    The first step, and the ``horizon``-th: until then the recipe and the reference each train on their own.
    """

    start: int = 0
    horizon: int = 1
    reference: Literal["fp32", "fp64"] = "fp32"

    def __post_init__(self) -> None:
        _at_least("start", self.start, 0)
        _at_least("horizon", self.horizon, 1)


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise AnalysisError(f"{name}={value!r} must be at least {least:g}")


def _above_zero(name: str, value: float) -> None:
    if not 0.0 < value < float("inf"):
        raise AnalysisError(f"{name}={value!r} must be positive and finite: leave it out for the default")


OPTIONS: dict[str, type[Options]] = {
    "sensitivity": SensitivityOptions,
    "stress": StressOptions,
    "layers": LayersOptions,
    "batch-size": BatchSizeOptions,
}
TITLES: dict[str, str] = {
    "sensitivity": "Smallest FP32 set",
    "stress": "Stress battery",
    "layers": "Layer by layer",
    "batch-size": "Largest batch",
}


def check_analysis(kind: str, recipe: Recipe, device_type: str) -> None:
    """Raise `AnalysisError` for a question that has no answer for this recipe on this kind of device."""
    if kind == "batch-size" and is_emulated(recipe, device_type):
        raise AnalysisError(
            f"analysis kind='batch-size' of recipe {recipe.name!r}: it is emulated on this device, where its speed and "
            "memory mean nothing: choose a recipe that is native here"
        )


def parse_options(kind: str, given: dict[str, Any]) -> Options:
    """The options of an analysis. Raises `AnalysisError`, naming the value, the rule and the remedy."""
    if kind not in OPTIONS:
        raise AnalysisError(f"analysis kind={kind!r} is unknown: choose one of {', '.join(OPTIONS)}")
    try:
        return msgspec.convert(given, OPTIONS[kind])
    except msgspec.ValidationError as error:
        raise AnalysisError(f"options of analysis {kind!r}: {error}") from error
