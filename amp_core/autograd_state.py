"""Names of autograd and autocast that torch keeps private or undocumented; read here and nowhere else."""

from __future__ import annotations

import torch
from torch import Tensor


def version(tensor: Tensor) -> int:
    """How often the tensor was changed in place."""
    return tensor._version


def autocast_depth() -> int:
    """How many autocast regions are open in this thread."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth
