"""Counting exponents of tensors: integer operations on the bits, on the tensor's own device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from amp_core.telemetry.exponents import EDGES, FIRST_ROW, MIN_EXPONENT, NUM_CLASSES, NUM_ROWS, Histogram

_MAGNITUDE = 0x7FFFFFFF
_MANTISSA_BITS = 23
_MANTISSA = (1 << _MANTISSA_BITS) - 1
_BIAS = 127
_SHIFT = 12  # of a magnitude's 31 bits the upper 19 name a cell: most cells lie wholly within one class
_SIZE = NUM_ROWS * NUM_CLASSES
_UNDECIDED = _SIZE  # the key of cells that hold an edge, and of subnormals, which are to be normalised first
_ZERO_OR_TINY = _SIZE + 1  # the lowest cell: many zeros, and hardly ever anything else


def exponent_counts(tensor: Tensor) -> Tensor:
    """Counts of a floating-point tensor, flat `(NUM_ROWS * NUM_CLASSES,)` int64 on its device.

    Types narrower than FP32 are widened, which is exact; doubles are rounded to FP32.
    """
    bits = tensor.detach().reshape(-1).float().view(torch.int32) & _MAGNITUDE
    keys = torch.index_select(_cells(tensor.device), 0, bits >> _SHIFT)
    found = torch.bincount(keys, minlength=_SIZE + 2)
    num_zeros = bits.numel() - torch.count_nonzero(bits)
    rest = bits[keys == _UNDECIDED]
    if found[_ZERO_OR_TINY] > num_zeros:
        rest = torch.cat([rest, bits[(bits > 0) & (keys == _ZERO_OR_TINY)]])
    counts = found[:_SIZE] + torch.bincount(_exact_keys(rest), minlength=_SIZE)
    counts[0] += num_zeros
    return counts


def histograms(counts: Sequence[Tensor]) -> list[Histogram]:
    """The counts as histograms; waits for the device once."""
    if not counts:
        return []
    tables = torch.stack(list(counts)).cpu().numpy().reshape(len(counts), NUM_ROWS, NUM_CLASSES)
    return [Histogram(np.ascontiguousarray(table)) for table in tables]


def _exact_keys(magnitudes: Tensor) -> Tensor:
    """Row and class of nonzero magnitudes, given as bits `(N,)` int32."""
    is_subnormal = magnitudes <= _MANTISSA
    # A subnormal is its mantissa times 2**-149: as a float, that integer has the exponent and mantissa looked for.
    normal = torch.where(is_subnormal, magnitudes.float().view(torch.int32), magnitudes)
    offset = FIRST_ROW - _BIAS + torch.where(is_subnormal, 0, -MIN_EXPONENT)
    rows = (normal >> _MANTISSA_BITS) + offset
    edges = torch.tensor(EDGES, dtype=torch.int32, device=magnitudes.device)
    return rows * NUM_CLASSES + torch.bucketize(normal & _MANTISSA, edges, right=True)


@cache
def _cells(device: torch.device) -> Tensor:
    """The key of each cell of magnitudes, `(2**19,)` int32."""
    first = torch.arange(1 << (31 - _SHIFT), dtype=torch.int32) << _SHIFT
    last = first | ((1 << _SHIFT) - 1)
    low, high = _exact_keys(first.clamp(min=1)), _exact_keys(last)
    undecided = (low != high) | (first <= _MANTISSA)
    keys = torch.where(undecided, _UNDECIDED, low)
    keys[0] = _ZERO_OR_TINY
    return keys.to(torch.int32).to(device)
