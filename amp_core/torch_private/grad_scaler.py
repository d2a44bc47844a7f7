"""The private state of `torch.amp.GradScaler`, read here and nowhere else; a contract test holds the names."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor


def scale(scaler: torch.amp.GradScaler) -> Tensor | None:
    """The scale itself (not a copy), `()`; None before the first call of ``scale``."""
    return scaler._scale


def growth_tracker(scaler: torch.amp.GradScaler) -> Tensor | None:
    """Clean steps since the last change of the scale, `()` int32; None before the first call of ``scale``."""
    return scaler._growth_tracker


def is_unscaled(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """Whether ``unscale_`` has been called for the optimizer since the last ``update``."""
    return bool(scaler._per_optimizer_states[id(optimizer)]["stage"].name == "UNSCALED")


def found_infs(scaler: torch.amp.GradScaler) -> list[Tensor]:
    """What every optimizer's gradients had on every device since the last ``update``: above 0 for a non-finite one."""
    states = scaler._per_optimizer_states.values()
    return [
        found for state in states for found in cast(dict[torch.device, Tensor], state["found_inf_per_device"]).values()
    ]


def found_infs_of(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The same of one optimizer."""
    state = scaler._per_optimizer_states[id(optimizer)]
    return list(cast(dict[torch.device, Tensor], state["found_inf_per_device"]).values())
