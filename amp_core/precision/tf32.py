"""TensorFloat-32: off while a run lasts, because FP32 means FP32, unless the recipe is tf32; on the record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import attrgetter
from typing import Any

import torch

BACKENDS = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")


def _switches() -> dict[str, Any]:
    """Every backend switch that may replace FP32 arithmetic by something narrower, by name."""
    return {name: attrgetter(name)(torch.backends) for name in BACKENDS}


def fp32_precision() -> dict[str, str]:
    """How each backend computes FP32 matrices right now: ``ieee``, ``tf32``, ``bf16`` or ``none`` (its default)."""
    return {name: str(switch.fp32_precision) for name, switch in _switches().items()}


def tf32_off() -> AbstractContextManager[None]:
    """IEEE FP32 in every backend inside; the former settings return afterwards."""
    return _set(dict.fromkeys(BACKENDS, "ieee"))


def tf32_on() -> AbstractContextManager[None]:
    """TF32 in CUDA's matrix products, convolutions and recurrent layers inside, IEEE FP32 elsewhere."""
    return _set({name: "tf32" if name.startswith(("cuda.", "cudnn.")) else "ieee" for name in BACKENDS})


@contextmanager
def _set(wanted: dict[str, str]) -> Iterator[None]:
    switches = _switches()
    before = {name: switch.fp32_precision for name, switch in switches.items()}
    for name, switch in switches.items():
        switch.fp32_precision = wanted[name]
    try:
        yield
    finally:
        for name, switch in switches.items():
            switch.fp32_precision = before[name]
