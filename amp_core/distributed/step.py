"""One training step of one rank: its rows of the batch, gradients of the whole one, one decision about skipping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from amp_core.distributed.group import Ranks
from amp_core.distributed.replicas import Replica
from amp_core.distributed.sharding import shard
from amp_core.step import TrainStep
from amp_core.torch_private.tensors import foreach_mul_
from amp_core.workload import num_samples_of, to_device


class RankStep(TrainStep):
    """`TrainStep` on this rank's share of each batch; loss, norms and sample counts are those of the whole batch.

    The loss must be a mean over the samples of a batch. A share of another size counts for its part of the samples.
    """

    is_whole = False

    def join(self, ranks: Ranks, replica: nn.Module) -> None:
        """Take part: call ``replica`` in forward, and agree on overflows before any step."""
        self.ranks = ranks
        self.called = replica
        self.is_sharded = isinstance(replica, FSDPModule)
        self._sizes: tuple[int, ...] = ()
        if self.scaler is not None:
            self.scaler.agree = ranks.agree_on_infs

    def take(self, batches: Iterator[Any]) -> tuple[Any, ...]:
        whole = tuple(islice(batches, self._accumulate))
        self._sizes = tuple(num_samples_of(batch) for batch in whole)
        ranks = self.ranks
        return tuple(to_device(shard(batch, ranks.rank, ranks.size), self.precision.device) for batch in whole)

    def num_samples(self, batches: Sequence[Any]) -> int:  # noqa: ARG002 - counted before they were shared out
        return sum(self._sizes)

    def backward(self, batches: Sequence[Any]) -> Tensor:
        last = len(batches) - 1
        parts = []
        for index, batch in enumerate(batches):
            weight = num_samples_of(batch) * self.ranks.size / self._sizes[index]
            with self._reduction(now=index == last):
                parts.append(self._share(batch, weight, len(batches)))
        if self.scaler is not None:
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)
        return self.ranks.sum(torch.stack(parts).mean() / self.ranks.size)

    def gradient_norms(self) -> Tensor | Sequence[Tensor] | None:
        """Norms of whole gradients, `(P,)`; with shards from the squares of every rank's."""
        if not self.is_sharded:
            return super().gradient_norms()
        norms = [torch.zeros((), device=self.ranks.device) if g is None else g.float().norm() for g in self._local()]
        return self.ranks.sum(torch.stack(norms).square()).sqrt()

    def _share(self, batch: Any, weight: float, num_parts: int) -> Tensor:
        loss = self.forward(batch)
        weighted = loss if weight == 1.0 else loss * weight
        part = weighted if num_parts == 1 else weighted / num_parts
        if self.scaler is not None:
            part = self.scaler.scale(part)
        part.backward()  # type: ignore[no-untyped-call]
        return weighted.detach().reshape(()).float()

    def _reduction(self, *, now: bool) -> AbstractContextManager[None]:
        """Whether backward reduces gradients: after the last batch of a step, that is; before, they add up here."""
        if isinstance(self.called, FSDPModule):
            self.called.set_requires_gradient_sync(now)
        elif isinstance(self.called, Replica) and not now:
            context: AbstractContextManager[None] = self.called.no_sync()
            return context
        return nullcontext()

    def _clip(self, norms: Tensor | Sequence[Tensor] | None) -> None:
        if not self.is_sharded:
            super()._clip(norms)
            return
        recipe = self.precision.recipe
        gradients = [gradient for gradient in self._local() if gradient is not None]
        if recipe.clip_norm is not None and isinstance(norms, Tensor):
            factor = (recipe.clip_norm / (torch.linalg.vector_norm(norms) + 1e-6)).clamp(max=1.0)
            foreach_mul_(gradients, factor)
        elif recipe.clip_value is not None:
            for gradient in gradients:
                gradient.clamp_(-recipe.clip_value, recipe.clip_value)

    def _local(self) -> list[Tensor | None]:
        """This rank's shard of every gradient."""
        found: list[Tensor | None] = []
        for parameter in self.parameters:
            gradient = parameter.grad
            found.append(gradient.to_local() if isinstance(gradient, DTensor) else gradient)
        return found
