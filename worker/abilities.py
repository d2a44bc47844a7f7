"""What a kind of hardware can compute, as the scheduler asks for it."""

from __future__ import annotations


def gpu_abilities(major: int, minor: int) -> list[str]:
    """By CUDA compute capability: tensor cores from 7.0, bf16 and TF32 from 8.0, fp8 from 8.9."""
    rules = {
        "fp16_tensor_cores": major >= 7,
        "bf16": major >= 8,
        "tf32": major >= 8,
        "fp8": (major, minor) >= (8, 9),
    }
    return [ability for ability, there in rules.items() if there]
