"""Mean and standard deviation of finite numbers of any size: no sum or square leaves float64 on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mean(numbers: Sequence[float]) -> float:
    """The mean of at least one number, also where their sum is beyond float64."""
    scale = max(map(abs, numbers)) or 1.0
    return float(np.mean(np.divide(numbers, scale))) * scale


def deviation(numbers: Sequence[float]) -> float | None:
    """The sample standard deviation, None of fewer than two; infinite only where it is itself beyond float64."""
    if len(numbers) < 2:
        return None
    scale = max(map(abs, numbers)) or 1.0
    return float(np.std(np.divide(numbers, scale), ddof=1)) * scale
