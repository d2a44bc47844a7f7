"""A script's own `torch.amp.GradScaler` beside the engine's: losses would be scaled twice, or without the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from amp_core.errors import ContractError
from amp_core.script.loop import Loop

METHODS = ("scale", "unscale_", "step")


@contextmanager
def refused_scalers(loop: Loop) -> Iterator[None]:
    """While open, an enabled GradScaler of the script's own is told as soon as it is used on what the engine runs.

    That is ``scale`` inside a block, and ``unscale_`` or ``step`` with a prepared optimizer. Disabled ones do nothing
    and may stay; so may one for a model that the engine does not know, outside of its blocks.
    """
    kind = torch.amp.GradScaler
    originals = {name: getattr(kind, name) for name in METHODS}
    for name, original in originals.items():
        setattr(kind, name, _checked(loop, name, original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(kind, name, original)


def _checked(loop: Loop, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> Any:
        if self is not loop.prepared.scaler and self.is_enabled() and _touches(loop, name, args, kwargs):
            raise ContractError(
                f"{type(self).__name__}.{name}() of your own on what amp.step() trains: the recipe decides about loss "
                "scaling, and a second scale would be in the recorded loss and gradients; remove the scaler, and call "
                "s.backward(loss), s.unscale() before clipping, and optimizer.step()"
            )
        return original(self, *args, **kwargs)

    method.__name__, method.__doc__ = original.__name__, original.__doc__
    return method


def _touches(loop: Loop, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "scale":
        return loop.block is not None
    optimizer = args[0] if args else kwargs.get("optimizer")
    return any(optimizer is prepared for prepared in loop.prepared.optimizers)
