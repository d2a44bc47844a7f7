"""Layer by layer: one step in low precision beside the same step in FP32 or FP64, by module in execution order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from amp_core.events import Report
from amp_core.forensics.execution import Execution
from amp_core.forensics.subject import FP32_ARM, FP64_ARM, Arm, Subject, low_dtype

MAX_ELEMENTS = 1 << 16  # of a tensor that are compared: a regular sample of larger ones
MAX_ROWS = 400
DEPARTS_AT = 32.0  # unit roundoffs of relative error that are no ordinary rounding any more
SAME_LOSS = 0.1
SMALL_LOSS = 0.02  # of the first loss of the run: differences are not looked at more closely than that


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A tensor in low precision beside its wide twin. ``relative_error`` is of 2-norms; ``ulp`` the mean distance in
    units in the last place of the low type; ``flushed`` the share of the twin's nonzero elements that are zero.
    """

    relative_error: float
    cosine: float
    ulp: float
    max_abs: float
    flushed: float
    num_bad: int  # elements that are not finite although the twin's are


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What one module computed: outputs, gradients of its outputs, its own weights' gradients and next values."""

    module: str
    type: str
    output: Difference | None = None
    output_gradient: Difference | None = None
    weight_gradient: Difference | None = None
    weight: Difference | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Layers in execution order; ``departs`` is the first whose output is further off than rounding explains."""

    layers: list[Layer]
    departs: str | None
    loss: float
    reference_loss: float
    dtype: str
    reference: str

    def same_loss(self, first_loss: float) -> bool:
        """Whether the losses agree to a tenth; a small one need not, beside the first loss of the run."""
        if not math.isfinite(self.reference_loss):
            return True  # nothing to compare with
        size = max(abs(self.reference_loss), SMALL_LOSS * abs(first_loss) if math.isfinite(first_loss) else 0.0)
        return abs(self.loss - self.reference_loss) <= SAME_LOSS * size


@dataclass(slots=True)
class _Seen:
    types: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)
    output_gradients: dict[str, Tensor] = field(default_factory=dict)
    weight_gradients: dict[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)


def layers(subject: Subject, *, exactly: bool = False, horizon: int = 1) -> Comparison:
    """Run the subject's first steps under its recipe and in FP32 (``exactly``: FP64) and compare the last of them.

    ``horizon`` is how many: with 1 both begin the step compared at the same weights. Raises whatever the model raises.
    """
    wide_arm = FP64_ARM if exactly else FP32_ARM
    low = _run(subject, Arm(recipe=subject.recipe), horizon)
    wide = _run(subject, wide_arm, horizon)
    dtype = low_dtype(subject)
    rows = [_layer(name, low, wide, dtype) for name in list(wide.types)[:MAX_ROWS]]
    limit = DEPARTS_AT * torch.finfo(dtype).eps / 2
    return Comparison(
        layers=rows,
        departs=next((row.module for row in rows if row.output is not None and _is_off(row.output, limit)), None),
        loss=_mean(low.losses),
        reference_loss=_mean(wide.losses),
        dtype=str(dtype).removeprefix("torch."),
        reference="fp64" if exactly else "fp32",
    )


def layer_report(subject: Subject, step: int, first_loss: float) -> tuple[Report, bool]:
    """The comparison after a step as a report of a run, and whether its losses disagree."""
    found = layers(subject)
    same = found.same_loss(first_loss)
    return Report(kind="layers", content=content_of(found, step, same), final=True), not same


def content_of(found: Comparison, step: int, same_loss: bool) -> dict[str, Any]:
    """The comparison of a step as the content of a report."""
    return {
        "step": step,
        "dtype": found.dtype,
        "reference": found.reference,
        "loss": _spelled(found.loss),
        "reference_loss": _spelled(found.reference_loss),
        "departs": found.departs or (None if same_loss else "loss"),
        "layers": [_row(layer) for layer in found.layers],
    }


def difference(low: Tensor, wide: Tensor, dtype: torch.dtype) -> Difference:
    """Compare two tensors of one shape; ``dtype`` is the low type in whose units the error is told."""
    a, b = low.detach().double().flatten(), wide.detach().double().flatten()
    bad = ~torch.isfinite(a) & torch.isfinite(b)
    both = torch.isfinite(a) & torch.isfinite(b)
    a, b = a[both], b[both]
    size, other = float(b.norm()), float(a.norm())
    off = float((a - b).norm())
    alive = b != 0
    return Difference(
        relative_error=off / size if size else (0.0 if off == 0 else math.inf),
        cosine=float(a @ b) / (size * other) if size and other else float(size == other),
        ulp=float(((a - b).abs() / spacing(b, dtype)).mean()) if b.numel() else 0.0,
        max_abs=float(a.abs().max()) if a.numel() else math.nan,
        flushed=float((alive & (a == 0)).sum()) / max(1, int(alive.sum())),
        num_bad=int(bad.sum()),
    )


def spacing(values: Tensor, dtype: torch.dtype) -> Tensor:
    """The distance between neighbours of ``dtype`` at each value, in float64; the smallest one below its range."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs().clamp(min=info.tiny))
    return info.eps * 2.0 ** (exponent - 1).double()


def _is_off(seen: Difference, limit: float) -> bool:
    return seen.num_bad > 0 or seen.relative_error > limit


def _layer(name: str, low: _Seen, wide: _Seen, dtype: torch.dtype) -> Layer:
    def pair(of_low: dict[str, Tensor], of_wide: dict[str, Tensor]) -> Difference | None:
        a, b = of_low.get(name), of_wide.get(name)
        return difference(a, b, dtype) if a is not None and b is not None and a.shape == b.shape else None

    return Layer(
        module=name,
        type=wide.types[name],
        output=pair(low.outputs, wide.outputs),
        output_gradient=pair(low.output_gradients, wide.output_gradients),
        weight_gradient=pair(low.weight_gradients, wide.weight_gradients),
        weight=pair(low.weights, wide.weights),
    )


def _run(subject: Subject, arm: Arm, horizon: int) -> _Seen:
    execution = Execution(subject, arm)
    seen = _Seen()
    with execution.applied():
        for number in range(horizon - 1):
            execution.step(subject.micro_batches(number))
        scale = float(execution.scaler.current_scale) if execution.scaler is not None else 1.0
        with _watching(execution.model, seen, scale):
            seen.losses = execution.gradients(subject.micro_batches(horizon - 1))
        seen.weight_gradients = _own(execution.model, gradient=True)
        execution.finish()
        seen.weights = _own(execution.model, gradient=False)
    return seen


@contextmanager
def _watching(model: nn.Module, seen: _Seen, scale: float) -> Iterator[None]:
    """Note the first output of every module but the root, and the gradient that comes back to it, without the scale."""
    handles = []
    for name, module in model.named_modules():
        if name:
            handles.append(module.register_forward_hook(_hook(name, seen, scale)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hook(name: str, seen: _Seen, scale: float) -> Any:
    def note_gradient(grad: Tensor) -> None:
        seen.output_gradients[name] = _sampled(grad).double() / scale

    def note(module: nn.Module, _args: Any, output: Any) -> None:
        if name in seen.types:
            return
        seen.types[name] = type(module).__name__
        tensor = _first_tensor(output)
        if tensor is None:
            return
        seen.outputs[name] = _sampled(tensor)
        if tensor.requires_grad:
            tensor.register_hook(note_gradient)  # type: ignore[no-untyped-call]

    return note


def _first_tensor(output: Any) -> Tensor | None:
    values = output if isinstance(output, tuple | list) else output.values() if isinstance(output, dict) else [output]
    return next((v for v in values if isinstance(v, Tensor) and v.is_floating_point()), None)


def _sampled(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten()
    return flat[:: max(1, -(-flat.numel() // MAX_ELEMENTS))].clone()


def _own(model: nn.Module, *, gradient: bool) -> dict[str, Tensor]:
    """The parameters of each module itself, or their gradients, as one vector."""
    found = {}
    for name, module in model.named_modules():
        own = [p.grad if gradient else p for p in module.parameters(recurse=False) if p.requires_grad]
        parts = [_sampled(tensor).double() for tensor in own if tensor is not None]
        if parts:
            found[name] = torch.cat(parts)
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _row(layer: Layer) -> dict[str, Any]:
    row: dict[str, Any] = {"module": layer.module, "type": layer.type}
    for part in ("output", "output_gradient", "weight_gradient", "weight"):
        seen: Difference | None = getattr(layer, part)
        if seen is not None:
            row[part] = {name: _spelled(getattr(seen, name)) for name in Difference.__slots__}
    return row


def _spelled(value: float) -> float | str:
    """JSON has no NaN and no infinity."""
    if math.isfinite(value):
        return float(f"{value:.6g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
