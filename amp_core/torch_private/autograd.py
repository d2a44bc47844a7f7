"""What autograd and autocast are doing in this thread."""

from __future__ import annotations

from typing import Any

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


def is_in_backward() -> bool:
    """Whether this thread executes a backward pass."""
    return torch._C._current_graph_task_id() != -1


def current_node() -> Any:
    """The node that the backward pass of this thread executes, or None."""
    return torch._C._current_autograd_node()


def next_number() -> int:
    """The sequence number that the next node made in this thread gets."""
    return torch._C._autograd._get_sequence_nr()


def number_of(node: Any) -> int:
    """A node's sequence number: nodes of one thread count up in the order of the forward pass."""
    return int(node._sequence_nr())
