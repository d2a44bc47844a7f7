"""Mixed precision on a CPU under rules of our own: tensor-core arithmetic for fp16, CUDA's or the CPU's lists."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torch.library import Library, fallthrough_kernel

from amp_core.precision import kernels, oplists, weight_casts
from amp_core.precision.autocast import Bf16Mixed, Fp16Mixed
from amp_core.torch_private.dispatcher import has_rule, operation_names, withdraw

_RULES = (
    (oplists.TENSOR_CORE | oplists.RECURRENT, kernels.tensor_core, False),
    (oplists.TENSOR_CORE_CHAIN, kernels.tensor_core_chain, True),
    (oplists.FP32, kernels.fp32, False),
    (oplists.PROMOTE, kernels.promote, False),
    (oplists.PROMOTE_PRODUCT, kernels.promote_product, False),
    (oplists.HALF_ON_CUDA, kernels.half_on_cuda, False),
    (oplists.BANNED, kernels.banned, False),
)
_NATIVE_RULES = ((oplists.TENSOR_CORE | oplists.TENSOR_CORE_CHAIN, kernels.tensor_core, False),)

Lists = Literal["cuda", "native"]
_installed: tuple[Lists, Library] | None = None


class EmulatedFp16Mixed(Fp16Mixed):
    """`Fp16Mixed` with emulated arithmetic: a prediction of a GPU's range faults, and no statement about its speed.

    The rules replace AutocastCPU's own for the whole process while `applied` is open: one run per process.
    """

    numerics: ClassVar[str] = "emulated"
    lists: ClassVar[Lists] = "cuda"

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        with autocast_rules(self.lists), super().applied(model):
            yield

    @contextmanager
    def forward(self) -> Iterator[None]:
        with torch.autocast("cpu", dtype=self.dtype), weight_casts.region():
            yield

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "autocast_lists": self.lists, "accumulation": "float32"}


class NativeListsFp16Mixed(EmulatedFp16Mixed):
    """Emulated products, and the CPU's own list for everything else: softmax, norms, exp and sums stay in fp16."""

    lists = "native"


class CudaListsBf16Mixed(EmulatedFp16Mixed):
    """bfloat16 in the CPU's own arithmetic with CUDA's autocast lists."""

    dtype = torch.bfloat16

    def describe(self) -> dict[str, Any]:
        return {**Bf16Mixed.describe(self), "autocast_lists": self.lists}


@contextmanager
def autocast_rules(lists: Lists) -> Iterator[None]:
    """Our rules under the AutocastCPU dispatch key for the whole process. Two lists at once are an error."""
    global _installed  # noqa: PLW0603 - the dispatcher is global, so is what was put there
    if _installed is not None:
        if _installed[0] != lists:
            raise RuntimeError(f"autocast rules of the {_installed[0]} lists are in force: leave them before {lists!r}")
        yield
        return
    library = _install(lists)
    _installed = (lists, library)
    try:
        yield
    finally:
        withdraw(library)
        _installed = None


def cuda_rules() -> AbstractContextManager[None]:
    """CUDA's autocast rules and tensor-core arithmetic for the whole process."""
    return autocast_rules("cuda")


def _install(lists: Lists) -> Library:
    library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    own = autocast_ops("AutocastCPU")
    listed: set[str] = set()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for names, rule, with_keyset in _RULES if lists == "cuda" else _NATIVE_RULES:
            for name in sorted(names if lists == "cuda" else names & own):
                op = _overload(name)
                if op is not None:
                    library.impl(name, rule(op), "AutocastCPU", with_keyset=with_keyset)  # type: ignore[no-untyped-call]
                    listed.add(name)
        for name in sorted(own - listed if lists == "cuda" else ()):
            library.impl(name, fallthrough_kernel, "AutocastCPU")  # type: ignore[no-untyped-call]
    return library


def autocast_ops(key: str) -> set[str]:
    """Names of the operations for which this torch has a rule under an autocast dispatch key."""
    return {
        name.removeprefix("aten::") for name in operation_names() if name.startswith("aten::") and has_rule(name, key)
    }


def _overload(name: str) -> Any | None:
    """The overload of that name, or None where this torch has no such operation."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None)
