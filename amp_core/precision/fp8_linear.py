"""FP8 linear layers in emulation: E4M3 forward, E5M2 gradients, a scale per tensor, FP32 accumulation.

The recipe is that of dynamic tensorwise scaling (Micikevicius et al. 2022, "FP8 Formats for Deep Learning", sections 3
and 5; torchao's default): each operand of each of the three products is cast with the scale that maps its largest
magnitude to the format's largest value. Casts saturate. Scales are divided out after the product, and the result is
rounded to bfloat16, to which the bias is added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16  # of every dimension of a product, as the hardware's fp8 kernels want it
TINY = 1e-12  # amax of a tensor of zeros
_OVERFLOWS = {E4M3: 464.0, E5M2: 61440.0}  # half a unit above the largest value: from here rounding leaves the format


@dataclass(slots=True)
class Fp8Counts:
    """What casts did since it was last read: elements that saturated or became zero, kept on the device."""

    saturated: Tensor | None = None
    underflowed: Tensor | None = None
    nonzero: Tensor | None = None
    elements: int = 0
    misfits: dict[tuple[int, int, int], int] = field(default_factory=dict)  # calls left in bf16, by shape

    def add(self, values: Tensor, scaled: Tensor, cast: Tensor) -> None:
        """Count one cast. Nothing waits for the device."""
        saturated = (~(scaled.abs() < _OVERFLOWS[cast.dtype])).sum()  # NaN, too: its scale was beyond telling
        nonzero = torch.count_nonzero(values)
        underflowed = nonzero - torch.count_nonzero(cast.float())
        first = self.saturated is None or self.underflowed is None or self.nonzero is None
        self.saturated = saturated if first else self.saturated + saturated  # type: ignore[operator]  # all or none
        self.nonzero = nonzero if first else self.nonzero + nonzero  # type: ignore[operator]
        self.underflowed = underflowed if first else self.underflowed + underflowed  # type: ignore[operator]
        self.elements += values.numel()

    def take(self) -> dict[str, float]:
        """The shares since the last call, by series; empty without casts. Waits for the device."""
        if self.saturated is None or self.underflowed is None or self.nonzero is None or not self.elements:
            return {}
        saturated, underflowed, nonzero = torch.stack([self.saturated, self.underflowed, self.nonzero]).tolist()
        shares = {
            "amp/fp8_saturated_fraction": saturated / self.elements,
            "amp/fp8_underflow_fraction": underflowed / nonzero if nonzero else 0.0,
        }
        self.saturated = self.underflowed = self.nonzero = None
        self.elements = 0
        return shares


def scaled_cast(values: Tensor, dtype: torch.dtype, counts: Fp8Counts | None = None) -> tuple[Tensor, Tensor]:
    """``values`` times a scale in an fp8 type, saturating, and the FP32 scale ``()``: largest value by amax.

    A NaN stays one; an infinity makes the scale 0, and so itself NaN: dynamic scales do not hide it.
    """
    wide = values.detach().float()
    largest = torch.finfo(dtype).max
    amax = wide.abs().amax() if wide.numel() else wide.new_zeros(())
    scale = (largest / amax.double().clamp(min=TINY)).float()
    scaled = wide * scale
    cast = scaled.clamp(-largest, largest).to(dtype)
    if counts is not None:
        counts.add(wide, scaled, cast)
    return cast, scale


def _product(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> Tensor:
    """``left @ right`` of two scaled casts: accumulated in FP32 in the scaled domain, then unscaled; FP32."""
    return (left[0].float() @ right[0].float()) / (left[1] * right[1])


class _Linear(torch.autograd.Function):
    """``x @ weight.T`` with fp8 operands; ``x``: (N, in) in bf16, ``weight``: (out, in), result (N, out) in bf16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, counts: Fp8Counts | None) -> Tensor:
        x8, weight8 = scaled_cast(x, E4M3, counts), scaled_cast(weight, E4M3, counts)
        ctx.save_for_backward(*x8, *weight8)
        ctx.counts, ctx.weight_dtype = counts, weight.dtype
        return _product(x8, (weight8[0].t(), weight8[1])).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        x8, x_scale, weight8, weight_scale = ctx.saved_tensors
        gradient8 = scaled_cast(gradient, E5M2, ctx.counts)
        needs_x, needs_weight, *_ = ctx.needs_input_grad
        to_x = _product(gradient8, (weight8, weight_scale)).to(gradient.dtype) if needs_x else None
        to_weight = None
        if needs_weight:
            to_weight = _product((gradient8[0].t(), gradient8[1]), (x8, x_scale)).to(gradient.dtype)
            to_weight = to_weight.to(ctx.weight_dtype)
        return to_x, to_weight, None


class Fp8Linear(nn.Linear):
    """A linear layer that computes in fp8 under autocast, and as any other outside it.

    Layers become this class for the time of a run (`amp_core.precision.fp8`), so that parameters and names stay.
    """

    counts: Fp8Counts

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        rows = x.numel() // self.in_features
        if rows % MULTIPLE or not rows:
            shape = (rows, self.in_features, self.out_features)
            self.counts.misfits[shape] = self.counts.misfits.get(shape, 0) + 1
            return super().forward(x)
        low = x.to(torch.get_autocast_dtype(x.device.type))
        counts = self.counts if torch.is_grad_enabled() else None
        with torch.autocast(x.device.type, enabled=False):
            result: Tensor = _Linear.apply(low.reshape(rows, -1), self.weight, counts)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            result = result + self.bias.to(low.dtype)
        return result.reshape(*x.shape[:-1], self.out_features)
