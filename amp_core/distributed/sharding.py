"""Each rank's part of a global batch: the rows of one process's batch, so that the data are the same."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from amp_core.errors import WorkloadError
from amp_core.workload import num_samples_of


def rows_of(num_samples: int, rank: int, size: int) -> slice:
    """A rank's rows of a batch: neighbours, as many as any other's or one more. Raises `WorkloadError` for too few."""
    if num_samples < size:
        raise WorkloadError(
            f"a batch of {num_samples} samples has none for {size - num_samples} of {size} ranks: give larger batches, "
            "drop the last one, or use fewer ranks"
        )
    return slice(rank * num_samples // size, (rank + 1) * num_samples // size)


def shard(batch: Any, rank: int, size: int) -> Any:
    """The batch with every tensor of its first dimension cut to this rank's rows; other values stay."""
    num_samples = num_samples_of(batch)
    return _cut(batch, num_samples, rows_of(num_samples, rank, size))


def _cut(part: Any, num_samples: int, rows: slice) -> Any:
    if isinstance(part, Tensor):
        return part[rows] if part.ndim and part.shape[0] == num_samples else part
    if isinstance(part, dict):
        return {key: _cut(value, num_samples, rows) for key, value in part.items()}
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*(_cut(value, num_samples, rows) for value in part))
    if isinstance(part, tuple | list):
        return type(part)(_cut(value, num_samples, rows) for value in part)
    return part
