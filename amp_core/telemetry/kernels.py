"""Kernels that ran on a CUDA device during one step, and which of them use tensor cores, by their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from amp_core.torch_private.profiler import ran_on_cuda

MAX_KERNELS = 60

# How the libraries name instructions of tensor cores: HMMA/IMMA/QGMMA and their shapes (884 Volta, 1688 Turing, 16816
# Ampere), CUTLASS's tensorop, Hopper's warp-group products, cuBLAS's nvjet, cuDNN's xmma, and fused attention.
_TENSOR_CORES = re.compile(
    r"(?<![0-9])(884|1688|16816|16832|16864)(?![0-9])|[hi]mma|gmma|tensorop|tensor_op|nvjet|xmma_|cudnn.*mma|flash_(fwd|bwd)|fmha",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"simt|ffma|sgemm(?!.*tensorop)", re.IGNORECASE)
_PRODUCT = re.compile(r"gemm|gemv|conv|mma|nvjet|cutlass|flash|fmha|wgrad|dgrad|fprop|implicit", re.IGNORECASE)


def uses_tensor_cores(kernel: str) -> bool:
    """Whether a kernel's name says that it computes on tensor cores; SIMT and FFMA kernels say that they do not."""
    return bool(_TENSOR_CORES.search(kernel)) and not _PLAIN.search(kernel)


class DeviceKernels:
    """Names of product kernels, by `torch.profiler` with device activity alone; nothing on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._profile: Any = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the kernels launched inside."""
        if not self._on_cuda:
            yield
            return
        profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        try:
            profile.start()
        except RuntimeError:  # another profiler holds the device's counters: the run goes on without names
            yield
            return
        try:
            yield
            torch.cuda.synchronize()
        finally:
            profile.stop()
        self._profile = profile

    def found(self) -> dict[str, bool]:
        """Kernels of products by name and whether they use tensor cores, those that took longest first."""
        if self._profile is None:
            return {}
        spent: dict[str, float] = {}
        for event in self._profile.events():
            if ran_on_cuda(event) and _PRODUCT.search(event.name):
                spent[event.name] = spent.get(event.name, 0.0) + event.self_device_time_total
        ordered = sorted(spent, key=lambda name: -spent[name])[:MAX_KERNELS]
        return {name[:200]: uses_tensor_cores(name) for name in ordered}
