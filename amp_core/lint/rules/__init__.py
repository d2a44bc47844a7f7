"""The rules, one module per subject; each registers its checks on import."""

from amp_core.lint.rules import (
    accumulation,
    autocast_reach,
    checkpoints,
    frameworks,
    gradients,
    modes,
    numbers,
    regions,
    scaler_life,
    scaling,
    speed,
    unscaling,
    weights,
)

IMPORTED = (
    accumulation,
    autocast_reach,
    checkpoints,
    frameworks,
    gradients,
    modes,
    numbers,
    regions,
    scaler_life,
    scaling,
    speed,
    unscaling,
    weights,
)
