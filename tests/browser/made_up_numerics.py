"""What made-up trainings say of their numbers: what really ran, and the exponents of their gradients."""

from __future__ import annotations

import numpy as np

from amp_core import events
from amp_core.telemetry.exponents import FIRST_ROW, MIN_EXPONENT, Histogram, empty, pack

LOW = {"bf16-mixed": "bfloat16", "16-mixed": "float16"}
FLOPS = 6_400_000_000


def proof(precision: str, layers: tuple[str, ...]) -> events.EffectivePrecision:
    """Products in the type asked for, norms and loss in FP32; one product is off the alignment."""
    dtype = LOW.get(precision, "float32")
    share = FLOPS // (3 * len(layers))
    operations = [
        events.Operations(
            module=layer, phase=phase, op="addmm", dtype=dtype, calls=parts, flops=parts * share, seconds=0.004 * parts
        )
        for layer in layers
        for phase, parts in (("forward", 1), ("backward", 2))
    ]
    loss = events.Operations(
        module="", phase="forward", op="mse_loss", dtype="float32", calls=1, flops=0, seconds=0.001
    )
    casts = [
        events.Casts(
            module=layer, phase="forward", source="float32", target=dtype, calls=3, num_bytes=525_312, seconds=3e-4
        )
        for layer in layers
        if dtype != "float32"
    ]
    seconds = {dtype: 0.048, "float32": 0.001} | ({"casts": 0.0012} if casts else {})
    off = [events.Misaligned(module=layers[-1], op="addmm", shapes=[[1024, 512], [512, 3]], multiple=8)]
    return events.EffectivePrecision(
        step=2,
        asked=dtype,
        took_effect=True,
        sentence=f"{dtype} was asked for, and 100 % of the FLOPs of matrix products ran in it.",
        flops={dtype: sum(one.flops for one in operations)},
        kept_flops={},
        seconds=seconds,
        operations=[*operations, loss],
        casts=casts,
        flags={"mkldnn.matmul": "ieee", "mkldnn.conv": "ieee"},
        fused={"optimizer": True, "compiled": False},
        misaligned=off if casts else [],
    )


def gradient_exponents(step: int, scale: float, layers: tuple[str, ...], *, dead: bool) -> events.ExponentHistograms:
    """Bell curves of exponents that sink while the training goes on; most are zeros where gradients have died."""
    histograms = [_histogram(np.random.default_rng([step, place]), step, dead=dead) for place in range(len(layers))]
    return events.ExponentHistograms(
        step=step, kind="gradients", scale=scale, modules=list(layers), counts=pack(histograms)
    )


def _histogram(rng: np.random.Generator, step: int, *, dead: bool) -> Histogram:
    made = empty()
    exponents = np.round(rng.normal(-17 - np.log2(1 + step / 40), 3.2, 400 if dead else 20_000)).astype(int)
    values, counts = np.unique(np.clip(exponents, -60, 4), return_counts=True)
    made.table[FIRST_ROW + values - MIN_EXPONENT, 2] = counts
    made.table[0, 0] = 19_600 if dead else 12
    return made
