"""Modules that keep no activations and compute them again in backward: less memory for more time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from amp_core.precision.fp32_modules import matching_modules

_kinds: dict[type[nn.Module], type[nn.Module]] = {}  # the checkpointed subclass of each type of module


def checkpoint_modules(model: nn.Module, patterns: Sequence[str]) -> None:
    """Checkpoint the named modules (names or globs) when they train. Raises `RecipeError` for a pattern without match.

    By a subclass per module type rather than a hook or a wrapper: names, state dicts and copies stay what they were.
    """
    for module in matching_modules(model, patterns, "gradient_checkpointing").values():
        module.__class__ = _checkpointed(type(module))


def _checkpointed(kind: type[nn.Module]) -> type[nn.Module]:
    if kind not in _kinds:
        _kinds[kind] = _subclass(kind)
    return _kinds[kind]


def _subclass(kind: type[nn.Module]) -> type[nn.Module]:
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return kind.forward(self, *args, **kwargs)
        return checkpoint(partial(kind.forward, self), *args, use_reentrant=False, **kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
