"""How numbers are handled: a small hierarchy of precisions over a no-op FP32 base."""

from amp_core.precision.autocast import Bf16Mixed, Fp16Mixed
from amp_core.precision.base import Fp32
from amp_core.precision.emulated import EmulatedFp16Mixed
from amp_core.precision.select import precision_for

Precision = Fp32  # the base is the type: what any precision can be asked

__all__ = ["Bf16Mixed", "EmulatedFp16Mixed", "Fp16Mixed", "Fp32", "Precision", "precision_for"]
