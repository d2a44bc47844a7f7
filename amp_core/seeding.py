"""Random streams of a run: one seed gives the same initial weights, data order and dropout masks in every recipe.

See docs/decisions/0021-seeding.md for what is derived how, so that a plain loop can do the same.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn


def stream_seed(seed: int, stream: str, index: int = 0) -> int:
    """A seed below 2**31 for one named stream of a run: the first bytes of SHA-256 over ``seed/stream/index``."""
    digest = hashlib.sha256(f"{seed}/{stream}/{index}".encode()).digest()
    return int.from_bytes(digest[:4], "little") & 0x7FFF_FFFF


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch (every device)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def preserved_rng(device: torch.device) -> Iterator[None]:
    """Leave the global generators as they were, whatever is drawn inside."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [device] if device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def rng_state(device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The state of torch's global generators (CPU, and the device's), for `set_rng_state`."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def set_rng_state(state: tuple[torch.Tensor, torch.Tensor | None], device: torch.device) -> None:
    """Return torch's global generators to a state from `rng_state`."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)


@torch.no_grad()
def perturb_weights(model: nn.Module, relative: float, seed: int) -> None:
    """Multiply each weight by ``1 + relative·N(0, 1)``, drawn from a generator of its own (the A/A control)."""
    generator = perturbation_generator(seed)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            factor = perturbation(parameter.shape, relative, generator)
            parameter.mul_(factor.to(parameter.device, parameter.dtype))


def perturbation_generator(seed: int) -> torch.Generator:
    """The generator of a seed's perturbations, to be used for each parameter in order."""
    return torch.Generator().manual_seed(stream_seed(seed, "perturbation"))


def perturbation(shape: torch.Size, relative: float, generator: torch.Generator) -> Tensor:
    """The next parameter's factors, FP32 on the CPU."""
    return 1 + relative * torch.randn(shape, generator=generator, dtype=torch.float32)
