"""Gradient clipping after unscaling, equal to `torch.nn.utils`; a norm that is at hand is not computed again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def clip_norm(parameters: Sequence[nn.Parameter], limit: float, norms: Tensor | Sequence[Tensor] | None) -> None:
    """Scale all gradients so that their common 2-norm is at most ``limit``.

    ``norms``: the norm of each parameter's gradient, in the order of ``parameters``; computed if None. A norm that is
    not finite makes every gradient NaN; the scaler has noted it before and skips the step.
    """
    if norms is None or any(_differs(p) for p in parameters):
        torch.nn.utils.clip_grad_norm_(parameters, limit)
        return
    torch.nn.utils.clip_grads_with_norm_(
        parameters, limit, torch.linalg.vector_norm(norms if isinstance(norms, Tensor) else torch.stack(list(norms)))
    )


def _differs(parameter: nn.Parameter) -> bool:
    """Whether the telemetry's norm of this gradient is not the one torch's clipping would take."""
    return parameter.grad is None or parameter.grad.dtype is not torch.float32


def clip_value(parameters: Sequence[nn.Parameter], limit: float) -> None:
    """Limit every gradient element to ``[-limit, limit]``."""
    torch.nn.utils.clip_grad_value_(parameters, limit)
