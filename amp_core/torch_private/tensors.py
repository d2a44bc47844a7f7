"""Operations on lists of tensors in one call, trees of tensors, views."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map

# Aliases and no functions of ours: they run in every step. Norms take a list, an order and a dtype; `foreach_mul_`
# multiplies a list by a number, `foreach_lerp_` moves a list towards another by a weight.
foreach_norm = torch._foreach_norm
foreach_mul_ = torch._foreach_mul_
foreach_lerp_ = torch._foreach_lerp_


def is_view(tensor: Tensor) -> bool:
    """Whether autograd knows the tensor as a view of another."""
    return bool(tensor._is_view())
