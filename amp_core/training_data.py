"""Training batches without end, and the place reached in them: seed, epoch, index."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch

from amp_core.errors import NotResumable, WorkloadError
from amp_core.seeding import stream_seed
from amp_core.workload import Workload, tensors_of


class TrainingData:
    """Iterates over epoch after epoch of a workload. Raises `WorkloadError` for an empty epoch."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload = workload
        self._seed = seed
        self._epoch = -1
        self._index = 0  # batches taken from this epoch
        self._batches: Iterator[Any] = iter(())
        self._last: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        for batch in self._batches:
            self._index += 1
            self._last = batch
            return batch
        if self._epoch >= 0 and self._index == 0:
            raise WorkloadError(
                f"batches('train', seed) of workload {self._workload.name!r} yields nothing in epoch {self._epoch}: "
                "yield at least one batch"
            )
        self._begin(self._epoch + 1)
        return next(self)

    def _begin(self, epoch: int) -> None:
        self._epoch, self._index = epoch, 0
        self._batches = iter(self._workload.batches("train", stream_seed(self._seed, "data", epoch)))

    def last_batches(self) -> list[Any]:
        """The batch taken last, if there is one."""
        return [] if self._last is None else [self._last]

    def position(self) -> dict[str, Any]:
        """Where the data stands, with a hash of the last batch; plain data for a checkpoint."""
        return {"seed": self._seed, "epoch": self._epoch, "index": self._index, "hash": batch_hash(self._last)}

    def forward_to(self, position: dict[str, Any]) -> None:
        """Take the epoch's batches again up to a position.

        Raises:
            NotResumable: if they are not the same: the data depend on more than the seed they are given.
        """
        self._begin(position["epoch"])
        for _ in range(position["index"]):
            batch = next(self._batches, None)
            if batch is None:
                raise self._mismatch(position, f"the epoch ends after {self._index} batches")
            self._index += 1
            self._last = batch
        if (found := batch_hash(self._last)) != position["hash"]:
            raise self._mismatch(
                position, f"batch {self._index} has the hash {found[:12]}, not {position['hash'][:12]}"
            )

    def start_at(self, epoch: int, index: int) -> None:
        """Begin in an epoch, after ``index`` of its batches or all it has: they are drawn and dropped."""
        self._begin(epoch)
        for batch in islice(self._batches, index):
            self._index += 1
            self._last = batch

    def _mismatch(self, position: dict[str, Any], what: str) -> NotResumable:
        return NotResumable(
            f"the data of workload {self._workload.name!r} cannot be taken up in epoch {position['epoch']}: {what}; "
            "batches('train', seed) must depend on the seed alone, not on global generators or earlier calls"
        )


def batch_hash(batch: Any) -> str:
    """SHA-256 over type, shape and bytes of every tensor of a batch, in hex."""
    digest = hashlib.sha256()
    for tensor in tensors_of(batch):
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
