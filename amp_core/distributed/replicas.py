"""The model as ranks hold it: whole on each (DDP), or in shards (FSDP2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from amp_core.config import Recipe
from amp_core.distributed.group import Ranks
from amp_core.precision import Precision
from amp_core.precision.fp32_modules import matching_modules
from amp_core.torch_private.buckets import GradBucket

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Replica(DistributedDataParallel):
    """DDP under which a workload's loss finds the attributes of its own model."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def replicate(model: nn.Module, recipe: Recipe, ranks: Ranks) -> Replica:
    """The model with its gradients averaged over the ranks, reduced in the recipe's ``reduce_dtype``."""
    devices = [ranks.device.index] if ranks.device.type == "cuda" else None
    replica = Replica(model, device_ids=devices)
    if recipe.reduce_dtype not in (None, "fp32"):
        replica.register_comm_hook(None, reduced_in(DTYPES[recipe.reduce_dtype]))
    return replica


def reduced_in(dtype: torch.dtype) -> Callable[[object, GradBucket], torch.futures.Future[Tensor]]:
    """A DDP communication hook: gradients are cast, divided by the number of ranks, summed in that type, cast back.

    Torch's own hooks do the same; the one for bfloat16 is refused by DDP outside of NCCL.
    """

    def hook(_state: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        buffer = bucket.buffer()
        low = buffer.to(dtype).div_(dist.get_world_size())
        work = dist.all_reduce(low, async_op=True)
        assert work is not None

        def raised(future: torch.futures.Future[list[Tensor]]) -> Tensor:
            summed: Tensor = future.value()[0]
            return buffer.copy_(summed)

        done: torch.futures.Future[Tensor] = work.get_future().then(raised)
        return done

    hook.__annotations__.clear()  # DDP compares them with classes, and ours are text
    return hook


def shard_weights(model: nn.Module, precision: Precision, ranks: Ranks) -> None:
    """FSDP2 in place: the blocks of module lists, then the rest; modules kept in FP32 gather their weights in FP32.

    Under a mixed recipe that is not emulated weights are gathered in the low type, where autocast would cast them.
    """
    recipe = precision.recipe
    mesh = init_device_mesh(ranks.device.type, (ranks.size,))
    reduce_dtype = DTYPES[recipe.reduce_dtype] if recipe.reduce_dtype is not None else torch.float32
    low = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(recipe.precision)
    if precision.numerics == "emulated" or ranks.device.type == "cpu":
        low = None  # the CPU's autocast rules cast by themselves, from FP32 weights
    kept = MixedPrecisionPolicy(reduce_dtype=reduce_dtype)
    policy = MixedPrecisionPolicy(param_dtype=low, reduce_dtype=reduce_dtype, cast_forward_inputs=False)
    if low is not None and recipe.fp32_modules:
        for module in matching_modules(model, recipe.fp32_modules, "fp32_modules").values():
            fully_shard(module, mesh=mesh, mp_policy=kept)
    for block in _blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def _blocks(model: nn.Module) -> list[nn.Module]:
    """The repeated parts of a model: members of its module lists that hold parameters."""
    return [
        block
        for parent in model.modules()
        if isinstance(parent, nn.ModuleList)
        for block in parent
        if next(block.parameters(), None) is not None and not isinstance(block, nn.ModuleList)
    ]
