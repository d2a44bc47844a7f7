"""How fast a device could multiply matrices: NVIDIA's published peaks, or what this CPU was measured to reach."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Dense matrix products by the type they compute in, in FLOP/s, and where the figures come from."""

    flops_per_s: Mapping[str, float]
    source: str


def _gpu(source: str, **tera: float) -> Peak:
    """Dense figures in TFLOP/s: half of what data sheets print with sparsity."""
    return Peak(
        flops_per_s={name: 1e12 * value for name, value in tera.items()},
        source=f"NVIDIA, {source}, dense",
    )


# First match of a lower-case part of the device's name. fp16 and bf16 with fp32 accumulation.
_GPUS: tuple[tuple[str, Peak], ...] = (
    ("h200 nvl", _gpu("H200 NVL data sheet", float32=60, tf32=417.5, bfloat16=835.5, float16=835.5, float8=1670.5)),
    ("h200", _gpu("H200 data sheet", float32=67, tf32=494.7, bfloat16=989.4, float16=989.4, float8=1978.9)),
    ("h100 pcie", _gpu("H100 data sheet", float32=51, tf32=378, bfloat16=756, float16=756, float8=1513)),
    ("h100 nvl", _gpu("H100 NVL data sheet", float32=60, tf32=417.5, bfloat16=835.5, float16=835.5, float8=1670.5)),
    ("h100", _gpu("H100 data sheet (SXM)", float32=67, tf32=494.7, bfloat16=989.4, float16=989.4, float8=1978.9)),
    ("l40s", _gpu("L40S data sheet", float32=91.6, tf32=183, bfloat16=362, float16=362, float8=733)),
    ("l40", _gpu("L40 data sheet", float32=90.5, tf32=90.5, bfloat16=181, float16=181, float8=362)),
    ("l4", _gpu("L4 data sheet", float32=30.3, tf32=60, bfloat16=121, float16=121, float8=242.5)),
    ("a100", _gpu("A100 data sheet", float32=19.5, tf32=156, bfloat16=312, float16=312)),
    ("a40", _gpu("A40 data sheet", float32=37.4, tf32=74.8, bfloat16=149.7, float16=149.7)),
    ("a30", _gpu("A30 data sheet", float32=10.3, tf32=82, bfloat16=165, float16=165)),
    ("a10", _gpu("A10 data sheet", float32=31.2, tf32=62.5, bfloat16=125, float16=125)),
    ("rtx 4090", _gpu("Ada architecture paper", float32=82.6, tf32=82.6, bfloat16=165.2, float16=165.2, float8=330.3)),
    ("rtx 3090", _gpu("Ampere GA102 architecture paper", float32=35.6, tf32=35.6, bfloat16=71, float16=71)),
    ("v100 pcie", _gpu("V100 data sheet (PCIe)", float32=14, float16=112)),
    ("v100", _gpu("V100 data sheet (SXM2)", float32=15.7, float16=125)),
    ("t4", _gpu("T4 data sheet", float32=8.1, float16=65)),
)
_CPU_SIZE, _CPU_TRIES = 512, 4
# fp16 may take seconds there, and emulated fp16 has no speed of its own
_CPU_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def peak_of(device: torch.device, dtypes: Iterable[str]) -> Peak | None:
    """The peak of a device for products in these types, or None where it is not known: nothing is guessed."""
    if device.type == "cpu":
        return _measured(torch.get_num_threads(), frozenset(dtypes))
    if device.type != "cuda":
        return None
    return published(torch.cuda.get_device_name(device))


def published(name: str) -> Peak | None:
    """The published peak of a GPU by the name that CUDA gives it."""
    words = name.lower().replace("-", " ").split()
    if {"laptop", "mig", "d"} & set(words):  # slices and slower namesakes
        return None
    for part, peak in _GPUS:
        wanted = part.split()
        if all(word in words for word in wanted):
            return peak
    return None


@cache
def _measured(num_threads: int, dtypes: frozenset[str]) -> Peak:
    """The fastest of a few products on this CPU; about 10 ms for each type, once in a process and number of threads."""
    rates = {name: _rate(dtype) for name, dtype in _CPU_DTYPES.items() if name in dtypes}
    size = f"{_CPU_SIZE}×{_CPU_SIZE}×{_CPU_SIZE}"
    return Peak(flops_per_s=rates, source=f"fastest of {_CPU_TRIES} products of {size}, {num_threads} threads")


def _rate(dtype: torch.dtype) -> float:
    left = torch.ones(_CPU_SIZE, _CPU_SIZE, dtype=dtype)
    best = float("inf")
    with torch.no_grad():
        torch.mm(left, left)
        for _ in range(_CPU_TRIES):
            began = time.perf_counter()
            torch.mm(left, left)
            best = min(best, time.perf_counter() - began)
    return 2 * _CPU_SIZE**3 / best
