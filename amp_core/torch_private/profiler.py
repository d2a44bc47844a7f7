"""What the profiler's events say of a device."""

from __future__ import annotations

from typing import Any

import torch


def ran_on_cuda(event: Any) -> bool:
    """Whether an event of `torch.profiler` is work of a CUDA device."""
    return event.device_type is torch._C._autograd.DeviceType.CUDA
