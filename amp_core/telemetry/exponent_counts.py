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
SMALL = 16_384  # elements up to which the calls cost more than the counting
_SIZE = NUM_ROWS * NUM_CLASSES
_UNDECIDED = _SIZE  # the key of cells that hold an edge, and of subnormals, which are to be normalised first
_ZERO_OR_TINY = _SIZE + 1  # the lowest cell: many zeros, and hardly ever anything else


def exponent_counts(tensor: Tensor) -> Tensor:
    """Counts of a floating-point tensor, flat `(NUM_ROWS * NUM_CLASSES,)` int64 on its device.

    Types narrower than FP32 are widened, which is exact; doubles are rounded to FP32.
    """
    return _counts(_magnitudes(tensor))


def grouped_counts(groups: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """`exponent_counts` of each group of tensors together; small groups are counted in one go."""
    sizes = [sum(tensor.numel() for tensor in group) for group in groups]
    small = [place for place, size in enumerate(sizes) if size <= SMALL]
    counts: dict[int, Tensor] = {}
    if len(small) > 1:
        bits = torch.cat([_magnitudes(tensor) for place in small for tensor in groups[place]])
        lengths = torch.tensor([sizes[place] for place in small], device=bits.device)
        keys = _exact_keys(bits) + _SIZE * torch.repeat_interleave(
            torch.arange(len(small), device=bits.device), lengths
        )
        counted = torch.bincount(keys, minlength=_SIZE * len(small)).view(len(small), _SIZE)
        counts = dict(zip(small, counted, strict=True))
    for place, group in enumerate(groups):
        if place not in counts:
            counts[place] = torch.stack([exponent_counts(tensor) for tensor in group]).sum(dim=0)
    return [counts[place] for place in range(len(groups))]


def _magnitudes(tensor: Tensor) -> Tensor:
    """The bits of the absolute values, `(N,)` int32."""
    return tensor.detach().reshape(-1).float().view(torch.int32) & _MAGNITUDE


def _counts(bits: Tensor) -> Tensor:
    keys = torch.index_select(_cells(bits.device), 0, bits >> _SHIFT)
    found = torch.bincount(keys, minlength=_SIZE + 2)
    num_zeros = bits.numel() - torch.count_nonzero(bits)
    rest = _picked(bits, keys == _UNDECIDED)
    if found[_ZERO_OR_TINY] > num_zeros:
        rest = torch.cat([rest, _picked(bits, (bits > 0) & (keys == _ZERO_OR_TINY))])
    counts = found[:_SIZE] + torch.bincount(_exact_keys(rest), minlength=_SIZE)
    counts[0] += num_zeros
    return counts


def _picked(bits: Tensor, mask: Tensor) -> Tensor:
    """Elements under a mask; NumPy does on a CPU in a tenth of the time what torch does."""
    return torch.from_numpy(bits.numpy()[mask.numpy()]) if bits.device.type == "cpu" else bits[mask]


def histograms(counts: Sequence[Tensor]) -> list[Histogram]:
    """The counts as histograms; waits for the device once."""
    if not counts:
        return []
    tables = torch.stack(list(counts)).cpu().numpy().reshape(len(counts), NUM_ROWS, NUM_CLASSES)
    return [Histogram(np.ascontiguousarray(table)) for table in tables]


def _exact_keys(magnitudes: Tensor) -> Tensor:
    """Row and class of magnitudes, given as bits `(N,)` int32."""
    is_subnormal = magnitudes <= _MANTISSA
    # A subnormal is its mantissa times 2**-149: as a float, that integer has the exponent and mantissa looked for.
    normal = torch.where(is_subnormal, magnitudes.float().view(torch.int32), magnitudes)
    offset = FIRST_ROW - _BIAS + torch.where(is_subnormal, 0, -MIN_EXPONENT)
    rows = (normal >> _MANTISSA_BITS) + offset
    rows = rows.clamp_(min=0)  # zero
    edges = torch.tensor(EDGES, dtype=torch.int32, device=magnitudes.device)
    return rows * NUM_CLASSES + torch.bucketize(normal & _MANTISSA, edges, right=True)


@cache
def _cells(device: torch.device) -> Tensor:
    """The key of each cell of magnitudes, `(2**19,)` int32."""
    first = torch.arange(1 << (31 - _SHIFT), dtype=torch.int32) << _SHIFT
    last = first | ((1 << _SHIFT) - 1)
    low, high = _exact_keys(first), _exact_keys(last)
    undecided = (low != high) | (first <= _MANTISSA)
    keys = torch.where(undecided, _UNDECIDED, low)
    keys[0] = _ZERO_OR_TINY
    return keys.to(torch.int32).to(device)
