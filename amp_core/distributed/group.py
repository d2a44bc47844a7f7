"""The ranks of a run, and what they agree on."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """This process among the ``size`` ranks of a run. Every method is a collective: all ranks call it, in one order."""

    rank: int
    size: int
    device: torch.device

    @classmethod
    def join(cls, device: torch.device) -> Ranks:
        """Join the others that torchrun has started; by NCCL on CUDA, by gloo on a CPU."""
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
        return cls(rank=dist.get_rank(), size=dist.get_world_size(), device=device)

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        dist.all_reduce(value)
        return value

    def agree_on_infs(self, found_infs: Sequence[Tensor]) -> None:
        """The largest over all ranks, in place: if one rank found an infinity, all of them have."""
        for found in found_infs:
            dist.all_reduce(found, op=dist.ReduceOp.MAX)

    def any(self, flag: bool) -> bool:
        """Whether it is true on any rank."""
        asked = torch.tensor([float(flag)], device=self.device)
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked.item())

    def from_rank(self, source: int, content: bytes) -> bytes:
        """The bytes that rank ``source`` gives, on every rank; what others give does not count."""
        size = torch.tensor([len(content)], device=self.device)
        dist.broadcast(size, source)
        sent = torch.empty(int(size.item()), dtype=torch.uint8, device=self.device)
        if self.rank == source:
            sent.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        dist.broadcast(sent, source)
        return sent.cpu().numpy().tobytes()

    def gathered(self, value: Any) -> list[Any]:
        """What every rank has (tensors and plain data), on every rank; read as data, never as code, as a file's is."""
        written = io.BytesIO()
        torch.save(value, written)
        own = torch.frombuffer(bytearray(written.getvalue()), dtype=torch.uint8).to(self.device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(own)], device=self.device))
        longest = int(max(size.item() for size in sizes))
        parts = [torch.empty(longest, dtype=torch.uint8, device=self.device) for _ in range(self.size)]
        dist.all_gather(parts, torch.nn.functional.pad(own, (0, longest - len(own))))
        return [
            torch.load(io.BytesIO(part[: int(size.item())].cpu().numpy().tobytes()), "cpu", weights_only=True)
            for part, size in zip(parts, sizes, strict=True)
        ]
