"""What to run and how numbers are handled: recipes and run configurations.

Standard library and msgspec only: the server imports this module and never loads torch. Every semantic check of a
recipe lives here once; REST, the command line and the child process all construct these same structs.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from amp_core.errors import RecipeError
from amp_core.recipe_rules import check_recipe

Precision = Literal["32-true", "tf32", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "fp8-mixed"]
ScalerKind = Literal["dynamic", "static", "none"]
HysteresisRefill = Literal["growth", "clean_step"]
Fp16Compute = Literal["auto", "emulated", "native"]
Fp8Compute = Literal["auto", "emulated", "native"]
ReduceDtype = Literal["fp32", "bf16", "fp16"]
Strategy = Literal["ddp", "fsdp"]
AutocastPolicy = Literal["auto", "native", "cuda"]
RunKind = Literal["train", "benchmark", "sensitivity", "stress", "layers", "batch-size"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
ALIASES: dict[str, Precision] = {
    "fp32": "32-true",
    "32": "32-true",
    "bf16": "bf16-mixed",
    "fp16": "16-mixed",
    "mixed_bfloat16": "bf16-mixed",
    "mixed_float16": "16-mixed",
    "fp16-mixed": "16-mixed",
    "bf16-pure": "bf16-true",
    "fp16-true": "16-true",
    "fp8": "fp8-mixed",
}
MIXED: tuple[Precision, ...] = ("bf16-mixed", "16-mixed")
TRUE_LOW: tuple[Precision, ...] = ("bf16-true", "16-true")
FP16_MAX = 65504.0


class Scaler(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Loss-scaling options under the names of ``torch.amp.GradScaler``.

    ``dynamic`` grows and backs off as GradScaler does; ``static`` keeps ``init_scale`` and skips non-finite steps;
    ``none`` neither scales nor skips. ``hysteresis``: the scale drops with the n-th overflow since the counter was
    filled, by ``growth`` of the scale or by each ``clean_step``. ``min_scale`` and ``max_scale`` bound a dynamic scale.
    ``stop_after_skips``: a run ends, with a diagnosis, after that many skipped steps in a row (0: never).
    Raises `RecipeError` for values that cannot work.
    """

    kind: ScalerKind = "dynamic"
    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    hysteresis: int = 1
    hysteresis_refill: HysteresisRefill = "growth"
    min_scale: float = 0.0
    max_scale: float | None = None
    stop_after_skips: int = 50

    def __post_init__(self) -> None:
        if not 0.0 < self.init_scale < 2.0**127:
            raise RecipeError(f"init_scale={self.init_scale:g} must be positive and finite: 65536 is the usual start")
        if not 1.0 < self.growth_factor < 2.0**32:
            raise RecipeError(f"growth_factor={self.growth_factor:g} must be above 1: 2 is usual")
        if not 0.0 < self.backoff_factor < 1.0:
            raise RecipeError(f"backoff_factor={self.backoff_factor:g} must lie between 0 and 1: 0.5 is usual")
        if self.growth_interval < 1:
            raise RecipeError(f"growth_interval={self.growth_interval} must be at least 1 step: 2000 is usual")
        if self.hysteresis < 1:
            raise RecipeError(f"hysteresis={self.hysteresis} must be at least 1 (PyTorch's rule): 2 is usual elsewhere")
        if self.hysteresis_refill not in get_args(HysteresisRefill):
            raise RecipeError(f"hysteresis_refill={self.hysteresis_refill!r} is unknown: choose growth or clean_step")
        if self.stop_after_skips < 0:
            raise RecipeError(f"stop_after_skips={self.stop_after_skips} must be 0 (never) or more: 50 is usual")
        self._check_bounds()

    def _check_bounds(self) -> None:
        if not 0.0 <= self.min_scale <= self.init_scale:
            raise RecipeError(
                f"min_scale={self.min_scale:g} must lie between 0 and init_scale={self.init_scale:g}: 1 is usual"
            )
        if self.max_scale is not None and not self.init_scale <= self.max_scale < 2.0**127:
            raise RecipeError(
                f"max_scale={self.max_scale:g} must be finite and at least init_scale={self.init_scale:g}: "
                "16777216 is usual"
            )
        if self.kind != "dynamic" and (self.hysteresis > 1 or self.min_scale > 0.0 or self.max_scale is not None):
            raise RecipeError(
                f"hysteresis, min_scale and max_scale with kind={self.kind!r}: they apply to kind='dynamic' only; "
                "leave them out"
            )


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How numbers are handled in one run: precision, loss scaler, modules kept in FP32, and what goes with a step.

    ``fp16_compute`` matters only to ``16-mixed`` on a CPU: ``emulated`` computes as tensor cores do (inputs and outputs
    rounded to fp16, fp32 accumulation, CUDA's autocast lists), ``native`` uses the CPU's own fp16 kernels, ``auto``
    picks native on devices with fp16 arithmetic and emulated elsewhere. ``fp8_compute`` likewise for ``fp8-mixed``:
    ``native`` is torchao on CUDA devices with fp8, ``auto`` native on CUDA and emulated on a CPU. ``autocast_policy``
    says whose list decides which operations are lowered: the device's own (``native``), CUDA's (``cuda``), or ``auto``:
    CUDA's where fp16 is emulated, else the device's own. ``fp32_modules`` are module names or globs
    (``blocks.*.norm``), and so are ``gradient_checkpointing`` (modules that compute their activations again in
    backward). ``fp32_ops`` are operations that autocast leaves in FP32, by their names in ``torch.ops.aten``
    (``softmax``, ``aten.sum.dim_IntList``).

    A step takes ``accumulate`` batches and uses the mean of their gradients. Clipping comes after unscaling.
    ``reduce_dtype`` is the type in which several ranks add up their gradients (None: FP32).
    ``ema_decay`` keeps an FP32 moving average of the weights, which evaluation uses. docs/recipes.md tells the rest.
    """

    name: str
    precision: Precision
    scaler: Scaler | None = None
    fp16_compute: Fp16Compute = "auto"
    fp8_compute: Fp8Compute = "auto"
    autocast_policy: AutocastPolicy = "auto"
    fp32_modules: tuple[str, ...] = ()
    fp32_ops: tuple[str, ...] = ()
    accumulate: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    ema_decay: float | None = None
    gradient_checkpointing: tuple[str, ...] = ()
    channels_last: bool = False
    compile: bool = False
    reduce_dtype: ReduceDtype | None = None

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 80:
            raise RecipeError(f"recipe name {self.name[:90]!r} must have 1 to 80 characters")
        check_recipe(self)


def recipe_name(precision: str, scaler_kind: str | None) -> str:
    """The default display name: ``16-mixed, static scale`` and so on."""
    if precision != "16-mixed":
        return precision
    return {"dynamic": "16-mixed", "static": "16-mixed, static scale", "none": "16-mixed, no scaler"}[
        scaler_kind or "dynamic"
    ]


def parse_recipe(given: str | dict[str, Any]) -> Recipe:
    """Read a recipe as people write it: a precision name or alias, or an object; fill name and scaler defaults.

    Raises:
        RecipeError: naming the value, the rule and the remedy.
    """
    fields: dict[str, Any] = {"precision": given} if isinstance(given, str) else dict(given)
    precision = fields.get("precision")
    if not isinstance(precision, str):
        raise RecipeError(f"a recipe needs a precision: one of {', '.join(PRECISIONS)}")
    precision = ALIASES.get(precision, precision)
    if precision == "transformer-engine":
        raise RecipeError(
            "precision='transformer-engine' is another library's fp8: choose fp8-mixed, which is torchao's"
        )
    if precision not in PRECISIONS:
        raise RecipeError(f"precision={precision!r} is unknown: choose one of {', '.join(PRECISIONS)}")
    fields["precision"] = precision
    if isinstance(fields.get("scaler"), str):
        fields["scaler"] = {"kind": fields["scaler"]}
    if precision == "16-mixed" and fields.get("scaler") is None:
        fields["scaler"] = {"kind": "dynamic"}
    scaler = fields.get("scaler")
    kind = scaler.get("kind", "dynamic") if isinstance(scaler, dict) else None
    if not fields.get("name"):
        if kind is not None and kind not in get_args(ScalerKind):
            raise RecipeError(f"scaler kind={kind!r} is unknown: choose one of {', '.join(get_args(ScalerKind))}")
        fields["name"] = recipe_name(precision, kind)
    try:
        return msgspec.convert(fields, Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(f"recipe {fields.get('name')!r}: {error}") from error


class WorkloadRef(msgspec.Struct, frozen=True, kw_only=True):
    """Which workload: a source file, the name of the class's workload, and its parameters."""

    name: str
    path: str
    params: dict[str, Any] = {}


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """How the ranks of a run work together: whole models (``ddp``) or shards (``fsdp``), and over which hosts.

    ``nnodes`` hosts meet at ``rdzv_endpoint`` (``host:port``), each as its ``node_rank``; one host needs neither.
    """

    strategy: Strategy = "ddp"
    nnodes: int = 1
    node_rank: int = 0
    rdzv_endpoint: str = ""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run begins instead of at its seed's weights: the checkpoint of run ``run`` after its step ``step``.

    ``name`` is the checkpoint's file, ``path`` where it lies on this host. ``seed`` and ``steps`` are those of the run
    that made it: with the same seed the data go on where they stood, and learning rates follow the schedule of its
    whole length. docs/decisions/0110-forks.md tells the rest.
    """

    run: int
    step: int
    name: str
    seed: int
    steps: int
    path: str = ""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a child process needs to execute one attempt of one run; it arrives as JSON on stdin.

    ``init_perturbation`` is the relative size of the perturbation of the initial weights (the A/A control uses 1e-6).
    ``baseline`` is the other arm of a benchmark, and ``options`` are those of an analysis (`amp_core.analyses`).
    ``num_threads`` of None leaves torch's own choice, which is recorded. ``ranks`` processes on this host train
    together if there are more than one, as ``distribution`` says; each takes its rows of every batch.
    Without ``checkpoint_dir`` there are no checkpoints; with it one is written after ``checkpoint_every_s`` seconds and
    every ``checkpoint_every_steps`` steps (0: by time alone). The run goes on from the first file of ``resume_from``
    that is whole and leads back into it, else from step 1. After each of ``keep_steps`` one is written that stays.
    After the last step at most ``diagnose_s`` seconds go into finding the cause of what went wrong (0: none).
    With ``fork`` the run begins at another one's checkpoint; its own steps count from 1.
    """

    run_id: int
    attempt: int
    kind: RunKind = "train"
    workload: WorkloadRef
    recipe: Recipe
    baseline: Recipe | None = None
    options: dict[str, Any] = {}
    seed: int = 0
    steps: int = 100
    eval_every: int = 50
    device: str = "cpu"
    num_threads: int | None = None
    ranks: int = 1
    distribution: Distribution = Distribution()
    init_perturbation: float = 0.0
    flush_interval_s: float = 0.25
    numerics_every: int = 25
    diagnose_s: float = 30.0
    scratch_dir: str = "."
    checkpoint_dir: str | None = None
    checkpoint_every_s: float = 30.0
    checkpoint_every_steps: int = 0
    checkpoint_keep: int = 3
    keep_steps: tuple[int, ...] = ()
    fork: Fork | None = None
    resume_from: tuple[str, ...] = ()
