"""Where and how a run really runs: versions, device, threads, flags."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from amp_core.precision import Precision
from amp_core.precision.tf32 import fp32_precision

# Top-level modules whose version can change numbers or speed, with the distribution each comes from.
PACKAGES = {
    name: name
    for name in (
        "numpy", "scipy", "torchvision", "torchaudio", "triton", "transformers", "accelerate", "lightning", "timm",
        "datasets", "diffusers", "flash_attn", "xformers",
    )
} | {"PIL": "pillow", "sklearn": "scikit-learn", "transformer_engine": "transformer-engine"}  # fmt: skip
_DRIVER = Path("/proc/driver/nvidia/version")


def environment(precision: Precision, workload_path: str) -> dict[str, Any]:
    """JSON-ready facts about this process, its device and the recipe as applied; call it inside ``applied``."""
    device = precision.device
    return {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": {"type": device.type, **(_cuda_device(device) if device.type == "cuda" else _cpu_device())},
        "num_threads": torch.get_num_threads(),
        "git_commit": git_commit(Path(workload_path).parent),
        "packages": packages(),
        "flags": {
            "fp32_precision": fp32_precision(),
            "tf32": any(value == "tf32" for value in fp32_precision().values()),
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
            "fp16_reduced_precision_reduction": bool(torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        },
        "recipe": precision.describe(),
    }


def _cpu_device() -> dict[str, Any]:
    return {
        "name": _cpu_name(),
        "abilities": {
            "vectors": torch.backends.cpu.get_cpu_capability(),
            **{name: bool(probe()) for name, probe in _cpu_probes().items()},
        },
    }


def _cpu_probes() -> dict[str, Any]:
    names = {
        "avx512_bf16": "_is_avx512_bf16_supported",
        "amx_tile": "_is_amx_tile_supported",
        "amx_fp16": "_is_amx_fp16_supported",
    }
    return {name: getattr(torch.cpu, probe) for name, probe in names.items() if hasattr(torch.cpu, probe)}


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _cuda_device(device: torch.device) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "driver": driver(),
    }


def driver(path: Path = _DRIVER) -> str | None:
    """The version of NVIDIA's kernel driver; None where it does not tell."""
    try:
        found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found.group() if found else None


def packages() -> dict[str, str]:
    """Versions of the packages that this process has imported and that can change numbers or speed."""
    found = {}
    for module, distribution in PACKAGES.items():
        if module in sys.modules:
            try:
                found[distribution] = metadata.version(distribution)
            except metadata.PackageNotFoundError:  # imported from a folder, not installed
                continue
    return found


def git_commit(folder: Path) -> str | None:
    """The commit checked out around a folder, ``+changes`` if its own files differ from it; None outside of git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}+changes" if changes else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers, or None where it cannot or takes too long."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
