"""Checkpoints of sharded models: the whole state on rank 0, and each rank's shards of it again.

A file holds what one process would have written, so that it can be read without knowing how many ranks made it. The
price is memory: rank 0 gathers model and optimizer state on its CPU, and each rank that resumes reads the whole file.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from amp_core.step import TrainStep
from amp_core.torch_private.tensors import tree_map


def gathered(state: dict[str, Any], *, keep: bool) -> dict[str, Any]:
    """The state with whole tensors on the CPU in place of shards. A collective; without ``keep`` they are given up."""

    def whole(leaf: Any) -> Any:
        if not isinstance(leaf, DTensor):
            return leaf
        full = leaf.full_tensor()
        return full.cpu() if keep else torch.empty(0)

    found: dict[str, Any] = tree_map(whole, state)
    return found


def scattered(step: TrainStep, state: dict[str, Any]) -> dict[str, Any]:
    """A gathered state with this rank's shards where the step has them: weights, and what optimizers hold of each.

    A collective. Raises `KeyError`, `ValueError` or `RuntimeError` for a state of another model.
    """
    own = step.model.state_dict()
    model = {name: _like(own[name], tensor) for name, tensor in state["model"].items()}
    optimizers = [
        {**saved, "state": _of_parameters(optimizer, saved["state"])}
        for optimizer, saved in zip(step.optimizers, state["optimizers"], strict=True)
    ]
    return {**state, "model": model, "optimizers": optimizers}


def _of_parameters(optimizer: torch.optim.Optimizer, saved: dict[int, Any]) -> dict[int, Any]:
    """Tensors of a parameter's shape (moments, momentum) are sharded as it is; counters stay whole on every rank."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        index: {
            key: _like(parameters[index], value) if isinstance(value, Tensor) and value.shape else value
            for key, value in values.items()
        }
        for index, values in saved.items()
    }


def _like(own: Tensor, whole: Tensor) -> Tensor:
    if not isinstance(own, DTensor) or whole.shape != own.shape:
        return whole
    return distribute_tensor(whole.to(own.device), own.device_mesh, own.placements)
