"""Mixed precision by torch's own autocast and the device's own arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from torch import nn

from amp_core.precision.base import Fp32


@contextmanager
def attention_as_written() -> Iterator[None]:
    """torch.nn's transformer layers without their fused evaluation path.

    It is taken on a CPU although autocast is on, and then evaluates in FP32 what was trained in a lower precision; on
    CUDA the layers avoid it by themselves.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class Bf16Mixed(Fp32):
    """Autocast to bfloat16 over FP32 weights; no loss scaling, because bfloat16 has FP32's exponent range."""

    lowers = True
    dtype: ClassVar[torch.dtype] = torch.bfloat16

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        with super().applied(model), attention_as_written():
            yield

    def forward(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=self.dtype)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "autocast": str(self.dtype).removeprefix("torch.")}


class Fp16Mixed(Bf16Mixed):
    """Autocast to float16 over FP32 weights; gradients need a loss scale."""

    dtype = torch.float16
