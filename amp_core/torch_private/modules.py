"""Modules: their hooks, and the base class of dropout."""

from __future__ import annotations

from torch import nn

DROPOUT: type[nn.Module] = nn.modules.dropout._DropoutNd  # of every class that drops out


def drop_forward_hooks(module: nn.Module) -> None:
    """Take every forward hook and forward pre-hook from the module."""
    module._forward_hooks.clear()
    module._forward_pre_hooks.clear()
