"""Proof of effective precision: what the operations of one step say about the recipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from amp_core.config import Recipe
from amp_core.events import Casts, EffectivePrecision, Misaligned, Operations
from amp_core.precision import Precision
from amp_core.precision.fp32_modules import matching_modules
from amp_core.precision.tf32 import fp32_precision
from amp_core.telemetry.kernels import DeviceKernels
from amp_core.telemetry.operations import OperationLog, Seen, Tally, is_convolution

ASKED = {
    "32-true": "float32",
    "tf32": "tf32",
    "bf16-mixed": "bfloat16",
    "16-mixed": "float16",
    "bf16-true": "bfloat16",
    "16-true": "float16",
    "fp8-mixed": "float8",
}
TAKES_EFFECT = 0.5  # of the FLOPs of products that the recipe may lower, so much must run in the type asked for
FP32_TOLERANCE = 0.01  # and where FP32 was asked for, at most so much may run in anything narrower
WIDE = ("float32", "float64")
ALIGNMENT = {"float16": 8, "bfloat16": 8, "float8": 16}  # elements; what tensor cores want of each dimension
MAX_ROWS = 400
MAX_MISALIGNED = 20


class Subject(Protocol):
    """What is watched: a training step, or the models of a script."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def precision(self) -> Precision: ...
    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]: ...


class Proof:
    """Watches one backward pass; its weights and random streams are those of any other."""

    def __init__(self, step: Subject, kept: Sequence[str] | None = None) -> None:
        """``kept``: the modules held in FP32, where the recipe's patterns do not fit the names of ``step.model``."""
        self._step = step
        self._kept = kept
        device = step.precision.device
        self._log = OperationLog(step.model, device, _fp32_products(step.precision))
        self._kernels = DeviceKernels(device)

    @property
    def is_paused(self) -> bool:
        """Whether what runs now is left out."""
        return self._log.is_paused

    @is_paused.setter
    def is_paused(self, value: bool) -> None:
        self._log.is_paused = value

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record the operations inside. A compiled model runs kernels of its compiler: only the device's are seen."""
        with self._kernels.recording():
            if self._step.precision.recipe.compile:
                yield
            else:
                with self._log.recording():
                    yield

    def event(self, number: int) -> EffectivePrecision:
        """What was seen; times of the device are read here."""
        recipe, seen = self._step.precision.recipe, self._log.seen
        kept: Iterable[str] = self._kept or ()
        if self._kept is None and recipe.fp32_modules:
            kept = matching_modules(self._step.model, recipe.fp32_modules, "fp32_modules")
        flops = _flops_by_type(seen.operations)
        kept_flops = _flops_by_type({key: tally for key, tally in seen.operations.items() if _is_in(key[0], kept)})
        took_effect, sentence = judged(recipe, flops, kept_flops)
        if self._log.error:
            took_effect = None
            sentence = f"The operations of this step could not be recorded to the end ({self._log.error})."
        unmet = kept_ops.never_called() if (kept_ops := self._step.precision.kept_ops) is not None else []
        if unmet:
            sentence += f" fp32_ops {', '.join(unmet)}: no call has met such a rule, so it changes nothing."
        fused = {"optimizer": any(g.get("fused") for o in self._step.optimizers for g in o.param_groups)}
        if seen.fused_attention:
            fused["attention"] = True
        return EffectivePrecision(
            step=number,
            asked=ASKED[recipe.precision],
            took_effect=took_effect,
            sentence=sentence,
            flops=flops,
            kept_flops=kept_flops,
            seconds=_seconds_by_type(seen),
            operations=_operations(seen.operations),
            casts=_casts(seen.casts),
            flags=fp32_precision(),
            fused={**fused, "compiled": recipe.compile},
            misaligned=_misaligned(seen),
            kernels=self._kernels.found(),
        )


def judged(recipe: Recipe, flops: dict[str, int], kept_flops: dict[str, int]) -> tuple[bool | None, str]:
    """Whether a recipe took effect, and that in a sentence; by the FLOPs of products outside its FP32 modules."""
    asked = ASKED[recipe.precision]
    free = {dtype: count - kept_flops.get(dtype, 0) for dtype, count in flops.items()}
    total = sum(free.values())
    if not total:
        why = (
            "The model is compiled, and its operations run inside the compiler's kernels"
            if recipe.compile
            else "No matrix product and no convolution was seen"
        )
        return None, f"{why}: whether {asked} took effect cannot be told."
    if asked == "float32":
        low = {dtype: count for dtype, count in free.items() if dtype not in WIDE}
        share = sum(low.values()) / total
        if share > FP32_TOLERANCE:
            where = _types(low)
            return False, (
                f"FP32 was asked for, but {_percent(share)} of the FLOPs of matrix products ran in {where}: look for "
                "an autocast, a .half() or a matmul precision that the workload sets itself."
            )
        return True, f"FP32 was asked for, and {_percent(1 - share)} of the FLOPs of matrix products ran in it."
    share = sum(count for dtype, count in free.items() if dtype.startswith(asked)) / total
    if share >= TAKES_EFFECT:
        return True, f"{asked} was asked for, and {_percent(share)} of the FLOPs of matrix products ran in it."
    others = _types({dtype: count for dtype, count in free.items() if not dtype.startswith(asked)})
    if recipe.fp32_ops:
        return None, (
            f"{_percent(1 - share)} of the FLOPs of matrix products ran in {others}, and fp32_ops keeps "
            f"{', '.join(recipe.fp32_ops)} in FP32: whether {asked} took effect elsewhere cannot be told."
        )
    return False, (
        f"{asked} was asked for, but {_percent(1 - share)} of the FLOPs of matrix products ran in {others}: look for "
        "an autocast that the workload switches off, a .float(), or operations that autocast does not lower."
    )


def _fp32_products(precision: Precision) -> Any:
    """In which type products with FP32 inputs are computed, as `OperationLog` asks."""
    emulated = getattr(precision, "dtype", None) if precision.numerics == "emulated" else None
    has_fp8 = precision.recipe.precision == "fp8-mixed" and emulated is not None
    library = "cuda.matmul" if precision.device.type == "cuda" else "mkldnn.matmul"
    convolutions = "cudnn.conv" if precision.device.type == "cuda" else "mkldnn.conv"

    def computed_in(func: Any, inputs: Sequence[Tensor]) -> str:
        if emulated is torch.float16 and all(_holds(one, emulated) for one in inputs):
            return "float16"
        if has_fp8 and all(_holds(one, torch.float8_e4m3fn) or _holds(one, torch.float8_e5m2) for one in inputs):
            return "float8"
        switch = fp32_precision()[convolutions if is_convolution(func) else library]
        return {"tf32": "tf32", "bf16": "bfloat16"}.get(switch, "float32")

    return computed_in


def _holds(tensor: Tensor, dtype: torch.dtype) -> bool:
    """Whether every value is one of the narrower type: what an emulated product was given, and nothing else is."""
    return bool(torch.equal(tensor.to(dtype).to(tensor.dtype).nan_to_num(0.0), tensor.nan_to_num(0.0)))


def _is_in(module: str, kept: Iterable[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in kept)


def _flops_by_type(operations: dict[tuple[str, str, str, str], Tally]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, _, _, dtype), tally in operations.items():
        if tally.flops:
            found[dtype] = found.get(dtype, 0) + tally.flops
    return found


def _seconds_by_type(seen: Seen) -> dict[str, float]:
    found: dict[str, float] = {}
    for (_, _, _, dtype), tally in seen.operations.items():
        found[dtype] = found.get(dtype, 0.0) + tally.seconds
    if seen.casts:
        found["casts"] = sum(tally.seconds for tally in seen.casts.values())
    return found


def _operations(found: dict[tuple[str, str, str, str], Tally]) -> list[Operations]:
    """Rows by falling time; what a very large model has beyond the limit is summed up by phase and type."""
    ordered = sorted(found.items(), key=lambda item: -item[1].seconds)
    rest: dict[tuple[str, str, str, str], Tally] = {}
    for (_, phase, _, dtype), tally in ordered[MAX_ROWS:]:
        total = rest.setdefault(("(other modules)", phase, "(other operations)", dtype), Tally())
        total.calls += tally.calls
        total.flops += tally.flops
        total.seconds += tally.seconds
    return [
        Operations(module=module, phase=phase, op=op, dtype=dtype, calls=t.calls, flops=t.flops, seconds=t.seconds)
        for (module, phase, op, dtype), t in [*ordered[:MAX_ROWS], *rest.items()]
    ]


def _casts(found: dict[tuple[str, str, str, str], Tally]) -> list[Casts]:
    ordered = sorted(found.items(), key=lambda item: -item[1].seconds)
    rows = []
    for (module, phase, _, types), tally in ordered[:MAX_ROWS]:
        source, _, target = types.partition("->")
        rows.append(
            Casts(
                module=module,
                phase=phase,
                source=source,
                target=target,
                calls=tally.calls,
                num_bytes=tally.num_bytes,
                seconds=tally.seconds,
            )
        )
    return rows


def _misaligned(seen: Seen) -> list[Misaligned]:
    """Products in a low type whose dimensions tensor cores would have to pad; batch dimensions do not matter."""
    found = []
    for product in seen.products:
        multiple = next((m for dtype, m in ALIGNMENT.items() if product.dtype.startswith(dtype)), None)
        if multiple is None or "attention" in product.op:
            continue
        dimensions = [size for shape in product.shapes for size in _matrix(product.op, shape)]
        if any(size % multiple for size in dimensions):
            shapes = [list(shape) for shape in product.shapes]
            found.append(Misaligned(module=product.module, op=product.op, shapes=shapes, multiple=multiple))
    return found[:MAX_MISALIGNED]


def _matrix(op: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of an operand that tensor cores tile: channels of convolutions, rows and columns of matrices."""
    return shape[1:2] if "conv" in op else shape[-2:]


def _types(flops: dict[str, int]) -> str:
    return " and ".join(sorted(flops, key=lambda dtype: -flops[dtype]))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
