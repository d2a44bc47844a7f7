"""Events about numbers: what a run measured of its own arithmetic, and what went wrong in it.

Standard library and msgspec only: the server imports them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from amp_core.event_base import Event


class ModuleStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Gradients of one module's own parameters at one step, after unscaling.

    ``zero_fraction``: elements that are exactly zero. ``underflow_fraction``: elements nonzero in fp32 (or before the
    cast) that fp16 at this loss scale turns into zero. ``max_abs`` may be NaN or infinite.
    """

    module: str
    num_elements: int
    zero_fraction: float
    underflow_fraction: float
    max_abs: float


class Numerics(Event, frozen=True, kw_only=True, tag="numerics"):
    """Sampled statistics of every module that owns parameters, in forward order."""

    step: int
    loss_scale: float
    modules: list[ModuleStatistics]


class ExponentHistograms(Event, frozen=True, kw_only=True, tag="exponent_histograms"):
    """Counts of exponents by module at one step; `amp_core.telemetry.exponents.read` reads them and tells the layout.

    ``kind``: ``activations`` (outputs of modules in forward), ``gradients`` (of weights, after unscaling and before
    clipping) or ``weights`` (before the update). ``scale``: the loss scale of the step. ``modules`` in forward order.
    """

    step: int
    kind: str
    scale: float
    modules: list[str]
    counts: str


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """Operations of one kind in one module: ``dtype`` is the type they computed in, ``flops`` those of products.

    ``seconds`` are those of the host's clock on a CPU and of the device's on CUDA.
    """

    module: str
    phase: str  # "forward" or "backward"
    op: str
    dtype: str
    calls: int
    flops: int
    seconds: float


class Casts(msgspec.Struct, frozen=True, kw_only=True):
    """Conversions between floating-point types in one module; ``num_bytes`` are those written."""

    module: str
    phase: str
    source: str
    target: str
    calls: int
    num_bytes: int
    seconds: float


class Misaligned(msgspec.Struct, frozen=True, kw_only=True):
    """A product with a dimension off the multiple that tensor cores want: 8 for fp16 and bf16, 16 for fp8."""

    module: str
    op: str
    shapes: list[list[int]]
    multiple: int


class EffectivePrecision(Event, frozen=True, kw_only=True, tag="effective_precision"):
    """What one step really computed in. ``asked``: the type the recipe wants for matrix products.

    ``flops`` and ``seconds`` are sums by type: of matrix products and convolutions, and of all operations.
    ``kept_flops`` are the part of ``flops`` in modules that the recipe keeps in FP32. ``took_effect`` is None where it
    cannot be told. ``kernels`` names what ran on the device (CUDA only), each with whether it uses tensor cores.
    """

    step: int
    asked: str
    took_effect: bool | None
    sentence: str
    flops: dict[str, int]
    kept_flops: dict[str, int]
    seconds: dict[str, float]
    operations: list[Operations]
    casts: list[Casts]
    flags: dict[str, str]
    fused: dict[str, bool]
    misaligned: list[Misaligned] = msgspec.field(default_factory=list)
    kernels: dict[str, bool] = msgspec.field(default_factory=dict)


class ZeroGradients(Event, frozen=True, kw_only=True, tag="zero_gradients"):
    """Modules whose gradients became exact zeros, and what the same batch gives at another loss scale.

    ``probe`` maps module to its zero fraction when the same batch is run again with ``probe_scale``.
    """

    step: int
    zero_fraction: dict[str, float]
    probe_scale: float
    probe: dict[str, float]


class StressFinding(Event, frozen=True, kw_only=True, tag="stress_finding"):
    """A case of the stress battery that the recipe does not bear as FP64 does.

    ``kind``: ``raises``, ``non_finite``, ``inaccurate``, ``gradient_overflow`` or ``gradient_lost``; ``module`` is the
    first one in execution order that shows it. ``caused_by``: ``recipe``, or ``fp32`` where FP32 fails as well.
    """

    case: str
    kind: str
    module: str
    caused_by: str
    sentence: str


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The faulty step's batch once more from the same state: at another loss scale, in FP32 or in FP64."""

    numbers: str  # "recipe", "fp32" or "fp64"
    scale: float
    loss: float
    finite: bool  # loss and gradients


class Diagnosis(Event, frozen=True, kw_only=True, tag="diagnosis"):
    """Where a numeric fault of this run starts, what it is, and what mends it; from a replay after the last step.

    ``severity``: ``fault``, or ``note`` for a skipped step with which the loss scale found its place. ``module`` is a
    name of `named_modules()`, empty for the model's own forward, None outside of it. ``batch`` counts from 0.
    ``caused_by`` is ``scale`` where another loss scale would help, else ``data``. ``recipe`` is what to submit instead;
    ``verified`` says that the steps around the fault were repeated under it without the symptom. ``bundle`` names the
    artifact that reproduces the fault, or is empty. docs/forensics.md.
    """

    severity: str
    symptom: str
    symptom_sentence: str
    kind: str
    family: str
    module: str | None
    op: str
    phase: str
    step: int
    batch: int
    max_abs: float | None
    scale: float | None
    caused_by: str
    sentence: str
    fix: str
    recipe: dict[str, Any] | None
    fp32_weights: bool
    verified: bool
    replays: list[Replay] = msgspec.field(default_factory=list)
    bundle: str = ""
    seconds: float = 0.0
