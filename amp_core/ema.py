"""An exponential moving average of the weights, kept in FP32 whatever the weights are stored in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from amp_core.torch_private.tensors import foreach_lerp_


class Ema:
    """Starts from the weights as they are; each `update` moves it by ``1 - decay`` of the distance to them."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights = {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
        self._averages = {name: p.detach().float().clone() for name, p in self._weights.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Follow the weights after a step that was not skipped; nothing waits for the device."""
        weights = [p.detach().float() for p in self._weights.values()]
        foreach_lerp_(list(self._averages.values()), weights, 1.0 - self.decay)

    def restart(self) -> None:
        """Begin anew from the weights as they are."""
        for name, average in self._averages.items():
            average.copy_(self._weights[name].detach())

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The averages in place of the model's weights, which return afterwards."""
        kept = {name: p.data for name, p in self._weights.items()}
        for name, p in self._weights.items():
            p.data = self._averages[name].to(p.dtype)
        try:
            yield
        finally:
            for name, p in self._weights.items():
                p.data = kept[name]

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._averages)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, average in self._averages.items():
            average.copy_(state[name])
