"""fp16 mixed precision on a CPU, computed as tensor cores compute it and with CUDA's autocast lists."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import nn
from torch.library import Library, fallthrough_kernel

from amp_core.precision import kernels, oplists, weight_casts
from amp_core.precision.autocast import Fp16Mixed

_RULES = (
    (oplists.TENSOR_CORE | oplists.RECURRENT, kernels.tensor_core, False),
    (oplists.TENSOR_CORE_CHAIN, kernels.tensor_core_chain, True),
    (oplists.FP32, kernels.fp32, False),
    (oplists.PROMOTE, kernels.promote, False),
    (oplists.PROMOTE_PRODUCT, kernels.promote_product, False),
    (oplists.HALF_ON_CUDA, kernels.half_on_cuda, False),
    (oplists.BANNED, kernels.banned, False),
)
_installed: Library | None = None


class EmulatedFp16Mixed(Fp16Mixed):
    """`Fp16Mixed` with emulated arithmetic: a prediction of a GPU's range faults, and no statement about its speed.

    The rules replace AutocastCPU's own for the whole process while `applied` is open: one run per process.
    """

    numerics: ClassVar[str] = "emulated"

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        with cuda_rules(), super().applied(model):
            yield

    @contextmanager
    def forward(self) -> Iterator[None]:
        with torch.autocast("cpu", dtype=torch.float16), weight_casts.region():
            yield

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "autocast_lists": "cuda", "accumulation": "float32"}


@contextmanager
def cuda_rules() -> Iterator[None]:
    """CUDA's autocast rules and tensor-core arithmetic under the AutocastCPU dispatch key, for the whole process."""
    global _installed  # noqa: PLW0603 - the dispatcher is global, so is what was put there
    if _installed is not None:
        yield
        return
    _installed = _install()
    try:
        yield
    finally:
        _installed._destroy()  # type: ignore[no-untyped-call]
        _installed = None


def _install() -> Library:
    library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    listed: set[str] = set()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for names, rule, with_keyset in _RULES:
            for name in sorted(names):
                op = _overload(name)
                if op is not None:
                    library.impl(name, rule(op), "AutocastCPU", with_keyset=with_keyset)  # type: ignore[no-untyped-call]
                    listed.add(name)
        for name in sorted(autocast_ops("AutocastCPU") - listed):
            library.impl(name, fallthrough_kernel, "AutocastCPU")  # type: ignore[no-untyped-call]
    return library


def autocast_ops(key: str) -> set[str]:
    """Names of the operations for which this torch has a rule under an autocast dispatch key."""
    has_rule = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    return {name.removeprefix("aten::") for name in names if name.startswith("aten::") and has_rule(name, key)}


def _overload(name: str) -> Any | None:
    """The overload of that name, or None where this torch has no such operation."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None)
