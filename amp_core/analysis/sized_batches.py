"""Batches of a wanted size: from the workload's own parameter ``batch_size``, else by joining its batches."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from amp_core import loader
from amp_core.config import WorkloadRef
from amp_core.errors import WorkloadError
from amp_core.training_data import TrainingData
from amp_core.workload import Workload, num_samples_of

PARAMETER = "batch_size"


def workload_for(ref: WorkloadRef, size: int) -> Workload:
    """The workload with its parameter ``batch_size`` set, or as it is where it has none or refuses the value."""
    plain = loader.load(ref)
    if all(parameter.name != PARAMETER for parameter in plain.parameters()):
        return plain
    try:
        return loader.load(msgspec.structs.replace(ref, params={**ref.params, PARAMETER: size}))
    except WorkloadError:  # a value beyond its bounds: its batches are joined instead
        return plain


def batches_of(workload: Workload, seed: int, size: int, count: int) -> list[Any]:
    """``count`` batches of exactly ``size`` samples, from the workload's in their order."""
    source = TrainingData(workload, seed)
    return [_batch(source, size) for _ in range(count)]


def _batch(source: TrainingData, size: int) -> Any:
    parts = [next(source)]
    held = num_samples_of(parts[0])
    if held < 1:
        raise WorkloadError("a batch without samples cannot be made larger: yield at least one sample")
    while held < size:
        parts.append(next(source))
        held += num_samples_of(parts[-1])
    try:
        return joined(parts, size)
    except RuntimeError:  # shapes differ from batch to batch, as padded sequences do: one of them is repeated
        return joined(parts[:1] * -(-size // num_samples_of(parts[0])), size)


def joined(parts: list[Any], size: int) -> Any:
    """The first ``size`` samples of batches of one structure, tensor by tensor along the first dimension.

    A tensor whose first dimension is not that of the samples stays the first batch's.
    """
    return _joined(parts, [num_samples_of(part) for part in parts], size)


def _joined(parts: list[Any], sizes: list[int], size: int) -> Any:
    first = parts[0]
    if isinstance(first, Tensor):
        if all(part.ndim and part.shape[0] == held for part, held in zip(parts, sizes, strict=True)):
            return torch.cat(parts)[:size] if len(parts) > 1 else first[:size]
        return first
    if isinstance(first, dict):
        return {key: _joined([part[key] for part in parts], sizes, size) for key in first}
    if isinstance(first, tuple | list):
        members = [_joined([part[place] for part in parts], sizes, size) for place in range(len(first))]
        return type(first)(*members) if hasattr(first, "_fields") else type(first)(members)
    return first
