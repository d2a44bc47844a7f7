"""Mixed precision by torch's own autocast and the device's own arithmetic."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch

from amp_core.precision.base import Fp32


class Bf16Mixed(Fp32):
    """Autocast to bfloat16 over FP32 weights; no loss scaling, because bfloat16 has FP32's exponent range."""

    lowers = True
    dtype: ClassVar[torch.dtype] = torch.bfloat16

    def forward(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=self.dtype)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "autocast": str(self.dtype).removeprefix("torch.")}


class Fp16Mixed(Bf16Mixed):
    """Autocast to float16 over FP32 weights; gradients need a loss scale."""

    dtype = torch.float16
